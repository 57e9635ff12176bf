"""From a summary to what people read: tables, charts, pages."""
