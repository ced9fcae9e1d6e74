"""The built-in tasks, adapters for other environments, and rendering."""
