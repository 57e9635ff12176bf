"""An example of a plugin: docs/plugins.md goes through it."""
