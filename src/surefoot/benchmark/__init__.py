"""How fast environments, training, imagination and planning are."""
