"""From a backend's profile to layers, groups, gaps and what would bring most."""
