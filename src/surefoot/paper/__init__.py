"""The experiments and claims of the paper, as values for `surefoot.experiments`."""
