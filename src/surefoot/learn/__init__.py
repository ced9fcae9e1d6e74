"""What improves a policy: networks, advantages, surrogates, multipliers and PPO."""
