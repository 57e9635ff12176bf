"""The report as one HTML file that works without a network: tables that sort and filter, charts that zoom."""
