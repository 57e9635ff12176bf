"""Parts that all backends on a GPU share: the context, buffers, graphs."""
