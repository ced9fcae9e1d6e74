"""The Safety-Velocity tasks: run forward, but not faster than a limit."""
