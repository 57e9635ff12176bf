"""Analysis of profiles: layers, groups, launch gaps, comparisons of backends, possible improvements."""
