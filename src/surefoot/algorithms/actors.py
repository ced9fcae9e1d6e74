"""What acts in real episodes: a policy, or random actions."""

from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from surefoot.algorithms.collect import Actor, Generators
from surefoot.core.policy import Policy
from surefoot.core.spaces import ActionSpec


def draw_from(
    policy: Policy,
    rngs: Generators,
    per_seed: int,
    steps: int,
    greedy: bool = False,
    correlation: np.ndarray | None = None,
) -> Actor:
    """An actor for `steps` steps that draws from a policy, or takes its mode if `greedy`.

    Each seed has its own generator, so its actions do not depend on the other seeds. The noise of
    successive actions may be correlated: by up to `correlation` [S] in a seed's last environment.
    """
    shape = (steps, per_seed, policy.actions)
    categorical = policy.kind == "categorical"
    if greedy:
        same = 0.5 if categorical else 0.0
        noise = np.full((steps, len(rngs), *shape[1:]), same, np.float32)
    elif categorical and correlation is None:
        noise = np.stack([rng.uniform(1e-12, 1.0, shape) for rng in rngs], 1)
    else:
        noise = np.stack([rng.standard_normal(shape, np.float32) for rng in rngs], 1)
        if correlation is not None:
            rho = np.outer(correlation, np.arange(1, per_seed + 1) / per_seed)[..., None]
            for before, after in pairwise(noise):
                after[:] = rho * before + np.sqrt(1 - rho**2) * after
        if categorical:
            noise = np.clip(ndtr(noise.astype(np.float64)), 1e-12, 1 - 1e-12)
    return lambda now: policy.sample(now.obs, noise[now.t])


def draw_uniformly(actions: ActionSpec, rngs: Generators, per_seed: int) -> Actor:
    """An actor that takes random actions within the bounds."""
    shape = (per_seed, actions.size)
    one = lambda rng: rng.uniform(actions.low, actions.high, shape).astype(np.float32)
    return lambda now: np.stack([one(rng) for rng in rngs])
