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


def system(turn=TURN, reward=REWARD) -> np.ndarray:
    """From state and action to the change of state, reward and cost."""
    change = np.concatenate([turn - np.eye(2), PUSH[None]])
    return np.concatenate([change, reward[:, None], COST[:, None]], 1)


def model(*matrices, std=0.0, binary=0):
    matrices = np.stack(matrices)
    offsets = np.zeros((len(matrices), matrices.shape[-1]))
    return linear_ensemble(matrices, offsets, matrices.shape[-1] - binary, std)
