"""Pictures and clips of environments."""
