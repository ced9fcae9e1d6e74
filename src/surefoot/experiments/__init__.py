"""Experiments: lists of jobs that are trained where runs are missing, and then reported."""
