"""Gymnasium environments as Surefoot's, and Surefoot's as Gymnasium's."""
