"""The RC-car task."""
