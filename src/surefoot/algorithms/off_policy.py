"""What the off-policy algorithms share: blocks of steps and updates, and the replay of real steps.

Training goes block by block: a few real steps, then as many updates on the replay. An epoch is a
number of blocks, after which the run is written down.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from surefoot.algorithms.collect import Act, Collector, Episodes, Experience
from surefoot.algorithms.common import over_seeds
from surefoot.algorithms.mbppo_memory import kept
from surefoot.algorithms.model_free import add_metrics, check_schedule
from surefoot.core.policy import Policy
from surefoot.core.spaces import ActionSpec, action_spec
from surefoot.learn import replay as replays
from surefoot.learn import sac
from surefoot.learn.replay import Replay, Transitions


def check_blocks(config: Any) -> None:
    """Complain of the fields that say how steps and updates take turns."""
    check_schedule(config)
    for name in ("environments", "update_every", "updates"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)} must be at least 1")
    if config.random_steps < 0:
        raise ValueError(f"random_steps={config.random_steps} must not be negative")
    for name, part in (("update_every", "environments"), ("steps_per_epoch", "update_every")):
        whole, unit = getattr(config, name), getattr(config, part)
        if whole % unit:
            near = -(-whole // unit) * unit
            raise ValueError(f"{name}={whole} must be a multiple of {part}={unit}; {near} would do")
    if config.replay < config.steps_per_epoch:
        raise ValueError(
            f"replay={config.replay} must be at least steps_per_epoch={config.steps_per_epoch}"
        )


class ReplayMemory:
    """The replay of all seeds on the device, and on the host what each epoch has added to it.

    So a checkpoint need not fetch the whole of it.
    """

    def __init__(self, config: Any, obs_size: int, actions: ActionSpec, seeds: int):
        self._seeds, self._actions, self._obs_size = seeds, actions, obs_size
        block = config.update_every
        self._capacity = min(config.replay, -(-config.steps // block) * block)
        self._put = over_seeds(replays.add, seeds, donate=(0,))
        self._kept: list[dict[str, np.ndarray]] = []
        self.replay: Replay = self._empty(0)

    def _empty(self, place: int) -> Replay:
        one = replays.empty(self._capacity, self._obs_size, self._actions.size, place)
        return jax.tree.map(lambda x: jnp.repeat(x[None], self._seeds, 0), one)

    def add(self, experience: Experience) -> None:
        """Put the steps of a block in."""
        self.replay = self._put(self.replay, self._rows([experience]))

    def keep(self, blocks: list[Experience]) -> None:
        """Remember the steps of an epoch on the host, and forget what the ring has lost."""
        self._kept.append(kept(vars(self._rows(blocks))))
        while sum(map(_count, self._kept[1:])) >= self._capacity:
            self._kept.pop(0)

    def _rows(self, blocks: list[Experience]) -> Transitions:
        """Steps flattened to [S, N, …], block after block."""
        flat = lambda x: x.reshape(x.shape[0], -1, *x.shape[3:])
        row = lambda name: np.concatenate([flat(getattr(b, name)) for b in blocks], 1)
        unit = sac.to_unit(self._actions, row("action"))
        real: Any = (row("obs"), unit, row("reward"), row("next_obs"), row("terminated"))
        return Transitions(*real)  # numpy; the compiled functions take them as they are

    def snapshot(self) -> list[dict[str, np.ndarray]]:
        """What is needed to fill it again; arrays that will not change."""
        return list(self._kept)

    def restore(self, parts: dict[str, Any], steps: int) -> None:
        """Fill it with what was kept of a run that has done so many steps."""
        self._kept = [kept(parts[str(i)]) for i in range(len(parts))]
        self.replay = self._empty(steps - sum(map(_count, self._kept)))
        for rows in self._kept:
            self.replay = self._put(self.replay, Transitions(**rows))  # type: ignore[arg-type]


def _count(rows: dict[str, np.ndarray]) -> int:
    return rows["reward"].shape[1]


def schedule(config: Any, totals: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """For each epoch to come its number, its blocks, and how many epochs there will be.

    The last epoch may be shorter than the others.
    """
    left = -(-max(0, config.steps - int(totals["steps"])) // config.update_every)
    most, number = config.steps_per_epoch // config.update_every, int(totals["epoch"])
    total = number + -(-left // most)
    while left:
        blocks, number = min(most, left), number + 1
        yield number, blocks, total
        left -= blocks


def box_actions(env: Any) -> ActionSpec:
    """The environment's actions, which must have bounds."""
    space = env.single_action_space
    actions = action_spec(space)
    if actions.discrete:
        raise ValueError(
            f"the environment's actions are {space}, but SAC and safe-LOOP need a Box of them; "
            f"ppo-lagrangian, cpo and mbppo-lagrangian take choices too"
        )
    if not (
        np.isfinite([actions.low, actions.high]).all() and np.less(actions.low, actions.high).all()
    ):
        raise ValueError(
            f"the environment's actions are from {actions.low} to {actions.high}, but SAC and "
            f"safe-LOOP need finite bounds, the lower below the upper"
        )
    return actions


def uniform(collector: Collector, actions: ActionSpec) -> Act:
    """Acts at random within the bounds, by each seed's own generator."""
    shape = (collector.per_seed, actions.size)
    one = lambda rng: rng.uniform(actions.low, actions.high, shape).astype(np.float32)
    return lambda obs, t: np.stack([one(rng) for rng in collector.rngs])


def squashed_policy(learner: sac.Learner, actions: ActionSpec) -> Policy:
    """The policies of a learner with a leading axis of seeds, for acting."""
    network = jax.device_get(learner.networks.actor.network)
    low, high = (np.asarray(x, np.float32) for x in (actions.low, actions.high))
    return Policy(tuple(network.weights), tuple(network.biases), None, low, high, kind="squashed")


def joined(blocks: list[Experience]) -> Experience:
    """The steps of several blocks as one experience, less the records of their states."""
    names = ("obs", "action", "reward", "cost", "next_obs", "terminated", "ended")
    steps = {name: np.concatenate([getattr(b, name) for b in blocks], 1) for name in names}
    episodes = []
    for parts in zip(*(b.episodes for b in blocks), strict=True):
        whole = lambda name, parts=parts: np.concatenate([getattr(p, name) for p in parts])
        episodes.append(Episodes(whole("reward"), whole("cost"), whole("length")))
    return Experience(blocks[0].seeds, **steps, before=None, after=None, episodes=episodes)


def tell(rows: list[dict[str, Any]], told: list[dict[str, Array]], names: tuple[str, ...]) -> None:
    """Give each seed's row the means over an epoch's blocks; NaN where nothing was learned."""
    unknown = np.full(len(rows), np.nan)
    told = jax.device_get(told)
    mean = lambda name: np.mean([m[name] for m in told], 0) if told else unknown
    add_metrics(rows, {name: mean(name) for name in names})
