"""Gymnasium: adapters in, registration out."""
