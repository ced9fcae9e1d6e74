"""A linear system, and models of it whose errors are known."""

import numpy as np

from surefoot.core.spaces import ActionSpec
from surefoot.world.black_box import BlackBox
from toys import linear_ensemble

ACTIONS = ActionSpec(1, low=(-0.5,), high=(0.5,))
# A system that turns and is pushed by the action, which is cut at 0.5; reward and cost linear.
TURN = np.array([[0.9, 0.3], [-0.3, 0.9]])
PUSH, REWARD, COST = np.array([0.3, -0.2]), np.array([0.7, -0.4, 0.5]), np.array([0.1, 0.0, -0.5])
TASK_MODEL = BlackBox(2, terminates=False)


def cost_of(x: np.ndarray) -> float:
    """The cost of a step from state and action; never negative."""
    return max(x @ COST, 0.0)


def system(turn=TURN, reward=REWARD) -> np.ndarray:
    """From state and action to the change of state, reward, cost and whether there is any.

    The model expects a cost at every step; `BlackBox` makes none of a negative one.
    """
    change = np.concatenate([turn - np.eye(2), PUSH[None]])
    return np.concatenate([change, reward[:, None], COST[:, None], np.zeros((3, 1))], 1)


def model(*matrices, std=0.0):
    """Members of which each is a `system`."""
    offsets = np.tile([0.0, 0.0, 0.0, 0.0, 50.0], (len(matrices), 1))
    return linear_ensemble(np.stack(matrices), offsets, 4, std)
