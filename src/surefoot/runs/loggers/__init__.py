"""Loggers: each receives every epoch of a run."""
