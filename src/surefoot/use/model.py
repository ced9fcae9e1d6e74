"""What a run has learned of the world, read back from its newest sound checkpoint."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from surefoot.algorithms.common import seed_keys
from surefoot.algorithms.presets import CONFIGS, MODEL_BASED
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.core.snapshot import Saved
from surefoot.core.spaces import ActionSpec
from surefoot.learn import ppo, sac
from surefoot.runs.checkpoint import Checkpoint, newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import check_checkpoint, check_info, config_in
from surefoot.world import ensemble as ensembles
from surefoot.world.ensemble import Ensemble
from surefoot.world.model import TaskModel


class Learned(NamedTuple):
    """A checkpoint of a run that has a model."""

    last: Checkpoint
    info: dict[str, Any]
    """The run's config.json."""
    config: Any
    """An MBPPOConfig or a SafeLoopConfig."""


def learned_in(run: str | Path, purpose: str) -> Learned:
    """What a run's newest sound checkpoint holds; a ValueError if it has no model to `purpose`."""
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise ValueError(f"{run} is not a run: there is no such folder")
    last, problems = newest_sound(folder.checkpoints)
    if last is None:
        why = "; ".join(problems) or "there is none"
        raise ValueError(f"{run} has no checkpoint that can be read: {why}")
    check_checkpoint(last, folder)
    info = check_info(last.meta["info"], folder.checkpoints)
    kind = CONFIGS.get(info["algorithm"])
    if kind not in MODEL_BASED:
        raise ValueError(
            f"{run} has no model to {purpose}: it was trained by {info['algorithm']}, which learns "
            f"without one; name a run of mbppo-lagrangian or safe-loop"
        )
    return Learned(last, info, config_in(info, folder.path))


def ensembles_in(learned: Learned, know: TaskModel, actions: ActionSpec) -> Ensemble:
    """The ensembles of all seeds, with a leading axis of them."""
    sizes = know.feature_size + actions.size, know.target_size, know.binary_size
    begin = lambda key: ensembles.init(learned.config.ensemble, *sizes, key)
    like = jax.jit(jax.vmap(begin))(seed_keys(learned.info["seeds"]))
    return Saved(learned.last.arrays).like("state/ensemble", like)


class Guide(NamedTuple):
    """What a run has learned to do, and what it expects to come of it."""

    learner: Any
    """Of all seeds, with a leading axis of them."""
    policy: Callable[[Any, Float[Array, "B O"], Key[Array, ""]], Float[Array, "B A"]]
    """What a seed's learner would do."""
    value: Callable[[Any, Float[Array, "B O"], Key[Array, ""]], Float[Array, " B"]]
    """The reward that it expects from there on."""


def guide_in(
    learned: Learned, know: TaskModel, actions: ActionSpec, deterministic: bool = False
) -> Guide:
    """The policies and reward critics of a run; `deterministic` ones do what is most probable."""
    if isinstance(learned.config, SafeLoopConfig):
        squashed = lambda learner, obs: jnp.tanh(learner.networks.actor(obs).gaussian.mean)
        drawn = lambda learner, obs, key: learner.sample(obs, key)
        act = (lambda learner, obs, _: squashed(learner, obs)) if deterministic else drawn
        return Guide(
            _sac_learner(learned, know, actions),
            lambda *args: sac.to_box(actions, act(*args)),
            lambda learner, obs, key: learner.value(obs, key),
        )
    drawn = lambda learner, obs, key: learner.sample(obs, key)
    mode = lambda learner, obs, _: learner.mode(obs)
    return Guide(
        _ppo_learner(learned, know, actions),
        mode if deterministic else drawn,
        lambda learner, obs, _: learner.critics(learner.scaled(obs))[..., 0],
    )


def _ppo_learner(learned: Learned, know: TaskModel, actions: ActionSpec) -> ppo.Learner:
    config, k = learned.config, len(know.cost_names)
    sizes = know.observation_size, actions.size, actions.discrete, k
    begin = lambda key: ppo.init(config.ppo, config.multiplier, *sizes, key)
    parts = ("actor", "critics", "normalizer")
    return _like(learned, "state/learner", begin, parts)


def _sac_learner(learned: Learned, know: TaskModel, actions: ActionSpec) -> sac.Learner:
    begin = lambda key: sac.init(learned.config.sac, know.observation_size, actions.size, key)
    return _like(learned, "state/sac/learner", begin, ("networks", "targets"))


def _like(learned: Learned, name: str, begin: Callable[..., Any], parts: tuple[str, ...]) -> Any:
    """New learners of all seeds, with those parts read that act and judge; nothing else is used."""
    like = jax.jit(jax.vmap(begin))(seed_keys(learned.info["seeds"]))
    saved = Saved(learned.last.arrays)
    return replace(like, **{p: saved.like(f"{name}/{p}", getattr(like, p)) for p in parts})
