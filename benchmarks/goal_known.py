"""Reward and cost of the Goal tasks as functions of the `reference` observation, for `--known`.

The last 32 numbers of that observation are the lidars of goal and hazards, 16 bins each. The
largest bin is (3 - d) / 3 of the nearest object at d < 3 metres. So the cost is exact. The reward
is exact but for a goal beyond 3 metres, which the lidar does not show, and for the step that meets
it: the new goal hides how far the robot went into the old one.

    surefoot train PointGoal --model black-box --known reward=benchmarks/goal_known.py:reward \\
        cost=benchmarks/goal_known.py:cost
"""

RANGE, GOAL_SIZE, HAZARD_SIZE = 3.0, 0.3, 0.2


def distance(lidar):
    """Metres to the nearest object, [N], from a lidar [N, 16]."""
    return RANGE * (1 - lidar.max(-1))


def cost(obs, action, next_obs):
    """1 within a hazard."""
    return (distance(next_obs[:, -16:]) <= HAZARD_SIZE + 1e-6) * 1.0


def reward(obs, action, next_obs):
    """Progress towards the goal, and 1 for meeting it."""
    before, after = distance(obs[:, -32:-16]), distance(next_obs[:, -32:-16])
    met = (before < GOAL_SIZE + 0.15) * (after > before + 0.15) * 1.0  # a new goal is far away
    return met * (before - GOAL_SIZE + 1.0) + (1 - met) * (before - after)
