"""Costs for Gymnasium's small environments, as a user would write them.

    surefoot train CartPole-v1 --cost benchmarks/costs.py:far --cost-limit 5

Each takes batches of observations and actions, and returns one cost for each row.
"""


def far(obs, action, next_obs):
    """CartPole: the cart is further than 0.5 from the centre."""
    return abs(next_obs[..., 0]) > 0.5


def pendulum_speed(obs, action, next_obs):
    """Pendulum: it turns faster than 4 rad/s."""
    return abs(next_obs[..., 2]) > 4.0


def slightly_far(obs, action, next_obs):
    """InvertedPendulum: the cart is further than 0.05 from the centre."""
    return abs(next_obs[..., 0]) > 0.05


def car_speed(obs, action, next_obs):
    """MountainCarContinuous: the car is faster than 0.04."""
    return abs(next_obs[..., 1]) > 0.04


def joint_speed(obs, action, next_obs):
    """Reacher: a joint is faster than 3 rad/s."""
    return (abs(next_obs[..., 6]) > 3.0) | (abs(next_obs[..., 7]) > 3.0)


def descent(obs, action, next_obs):
    """LunarLander: it falls faster than 0.5."""
    return next_obs[..., 3] < -0.5


def swing(obs, action, next_obs):
    """Acrobot: the second joint is faster than 4 rad/s."""
    return abs(next_obs[..., 5]) > 4.0
