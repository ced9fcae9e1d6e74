"""Policy improvement: networks, advantages, surrogates, multipliers, PPO, trust region, SAC."""
