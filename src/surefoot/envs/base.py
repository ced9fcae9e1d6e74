"""The vector-environment contract that all built-in tasks share.

A task implements the hooks at the end of `TaskEnv`. Checking of actions, time limits, auto-reset in
the same step and `info` are implemented here, once.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from surefoot.envs.streams import Streams

if TYPE_CHECKING:
    from mujoco import MjModel  # pyright: ignore[reportAttributeAccessIssue]

    from surefoot.envs.render.scene import Scene

EXCEPTION_REWARD = -10.0
SUMS = ("elapsed", "episode_reward", "episode_cost")
Info = dict[str, Any]
State = Any
"""Whatever a task's model takes: a pytree of arrays [N, …]."""


class StepResult(NamedTuple):
    """One step of all environments, before any reset."""

    reward: np.ndarray
    """[N]."""
    cost: np.ndarray
    """[N, k], float64."""
    terminated: np.ndarray
    """[N]."""
    truncated: np.ndarray
    """Truncated by a failure of the simulation, [N]; the time limit is applied later."""


class TaskEnv(VectorEnv):
    """N copies of a task, stepped together.

    - `info["cost"]` holds the costs of the step, float64 [N, k] for the k `cost_names`.
    - An episode that ends restarts within the same step: `obs` is then the first observation of
      the new episode, `info["final_obs"]` the last one of the old, where `info["_final_obs"]`.
    - Environment i is seeded with `seed + i`; its episodes depend on that number alone.
    - `outcome` is the state (see `state`) right after the physics of the last step, before goals
      are redrawn and episodes restart: the target of a dynamics model.
    """

    metadata = {  # noqa: RUF012 - gymnasium declares it so
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": ["rgb_array"],
        "render_fps": 30,
    }
    cost_names: tuple[str, ...] = ("cost",)
    max_episode_steps: int
    action_repeat: int = 1
    outcome: State = None
    make_streams: ClassVar[type] = Streams
    """Makes the environments' random streams from their seeds."""

    def __init__(
        self,
        num_envs: int,
        observation_size: int,
        action_low: np.ndarray,
        action_high: np.ndarray,
        max_episode_steps: int,
        action_repeat: int = 1,
        seed: int | None = None,
        render_mode: str | None = None,
    ):
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ValueError(f"num_envs={num_envs!r} must be a whole number, at least 1")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r} must be None or 'rgb_array'")
        self.num_envs, self.render_mode = num_envs, render_mode
        self.max_episode_steps, self.action_repeat = max_episode_steps, action_repeat
        # Gymnasium declares spaces of any kind, and writable; these are boxes.
        self.single_observation_space: spaces.Box = spaces.Box(  # pyright: ignore[reportIncompatibleVariableOverride]
            -np.inf, np.inf, (observation_size,), np.float64
        )
        self.single_action_space: spaces.Box = spaces.Box(  # pyright: ignore[reportIncompatibleVariableOverride]
            action_low.astype(np.float32), action_high.astype(np.float32), dtype=np.float32
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._low = action_low.astype(np.float64)
        self._high = action_high.astype(np.float64)
        self._all = np.arange(num_envs)
        self.elapsed = np.zeros(num_envs, dtype=np.int64)
        self.episode_reward = np.zeros(num_envs)
        self.episode_cost = np.zeros((num_envs, len(self.cost_names)))
        self.failures = 0  # simulations that failed, since the start
        self.streams = self.make_streams(self._seeds(seed))
        self._started = False

    def reset(  # type: ignore[override]
        self, *, seed: int | Sequence[int] | None = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        """Start new episodes everywhere, or only where `options["reset_mask"]` is true."""
        everywhere = np.ones(self.num_envs, dtype=bool)
        mask = np.asarray((options or {}).get("reset_mask", everywhere), dtype=bool)
        if mask.shape != everywhere.shape:
            raise ValueError(
                f"options['reset_mask'] has shape {mask.shape}; it must be {everywhere.shape}"
            )
        ids = np.flatnonzero(mask)
        if seed is not None:
            seeds = self._seeds(seed)
            self.streams.seed(ids.tolist(), [seeds[i] for i in ids])
        self._started = True
        self._restart(ids)
        self.outcome = self.state()
        return self.observe(self._all), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Info]:
        """One step of every environment with actions [N, A] (clipped to their bounds)."""
        if not self._started:
            raise RuntimeError("call reset() before the first step()")
        actions = self._checked(actions)
        reward, cost, terminated, truncated = self.advance(actions)
        for _ in range(1, self.action_repeat):
            ended = terminated | truncated
            more = self.advance(actions)
            reward = reward + np.where(ended, 0.0, more.reward)
            cost = cost + np.where(ended[:, None], 0.0, more.cost)
            terminated = terminated | (more.terminated & ~ended)
            truncated = truncated | (more.truncated & ~ended)
        self.elapsed += self.action_repeat
        failed = truncated
        truncated = truncated | (self.elapsed >= self.max_episode_steps)
        self.episode_reward += reward
        self.episode_cost += cost
        self.outcome = self._outcome()
        info: Info = {"cost": cost, "_cost": np.ones(self.num_envs, dtype=bool)}
        if failed.any():
            info["failed"] = failed
        obs = self.observe(self._all)
        ended = terminated | truncated
        if ended.any():
            ids = np.flatnonzero(ended)
            self._restart(ids)
            info["final_obs"], info["_final_obs"] = obs, ended
            obs = obs.copy()
            obs[ids] = self.observe(ids)
        return obs, reward, terminated, truncated, info

    def render(self) -> tuple[np.ndarray, ...] | None:  # type: ignore[override]
        """A top-down picture of each environment, uint8 [H, W, 3]."""
        if self.render_mode is None:
            return None
        from surefoot.envs.render.draw import draw

        return tuple(draw(self.scene(i)) for i in range(self.num_envs))

    def snapshot(self) -> Info:
        """All that is needed to continue exactly, as nested dicts of arrays."""
        sums = {name: getattr(self, name).copy() for name in SUMS}
        count = np.array(self.failures)
        return {**sums, "failures": count, "streams": self.streams.state(), "task": self._save()}

    def restore(self, state: Info) -> None:
        """Continue from a snapshot of as many environments of the same task."""
        for name in SUMS:
            values = getattr(self, name)
            values[:] = np.reshape(state[name], values.shape)  # older snapshots have costs [N]
        self.failures = int(state["failures"])
        self.streams.restore(state["streams"])
        self._load(state["task"])
        self.outcome, self._started = self.state(), True

    def _restart(self, ids: np.ndarray) -> None:
        if len(ids):
            self._begin(ids)
            self.elapsed[ids] = 0
            self.episode_reward[ids] = 0.0
            self.episode_cost[ids] = 0.0

    def _seeds(self, seed: int | Sequence[int] | None) -> list[int]:
        if seed is None:
            return np.random.SeedSequence().generate_state(self.num_envs).tolist()
        if isinstance(seed, int | np.integer):
            seed = range(seed, seed + self.num_envs)
        if len(seed) != self.num_envs:
            raise ValueError(f"seed has {len(seed)} entries for {self.num_envs} environments")
        for s in seed:
            if not 0 <= s < 2**32:
                raise ValueError(f"seed {s} must be from 0 to 2**32 - 1")
        return [int(s) for s in seed]

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        a = np.asarray(actions, dtype=np.float64)
        if a.shape != self.action_space.shape:
            raise ValueError(f"actions have shape {a.shape}, not {self.action_space.shape}")
        if not np.isfinite(a).all():
            i, j = np.argwhere(~np.isfinite(a))[0]
            raise ValueError(f"action {j} of environment {i} is {a[i, j]}; it must be finite")
        return np.minimum(np.maximum(a, self._low), self._high)

    def scene(self, i: int) -> "Scene":
        """What a picture of environment i shows."""
        return replace(
            self._scene(i),
            step=int(self.elapsed[i]),
            max_steps=self.max_episode_steps,
            reward=float(self.episode_reward[i]),
            cost=float(self.episode_cost[i].sum()),
        )

    # Hooks that a task must implement.

    def _begin(self, ids: np.ndarray) -> None:
        """Draw new episodes for the environments `ids`."""
        raise NotImplementedError

    def advance(self, actions: np.ndarray) -> StepResult:
        """Simulate one step of all environments, without time limits and resets."""
        raise NotImplementedError

    def observe(self, ids: np.ndarray) -> np.ndarray:
        """Observations [len(ids), D] of the present state."""
        raise NotImplementedError

    def state(self) -> State:
        """The present state, as the task's model takes it (arrays of [N, …])."""
        raise NotImplementedError

    def _scene(self, i: int) -> "Scene":
        """The scene of environment i, without steps and sums."""
        raise NotImplementedError

    def _save(self) -> dict[str, np.ndarray]:
        """The task's part of a snapshot, copied."""
        raise NotImplementedError

    def _load(self, state: dict[str, np.ndarray]) -> None:
        """Restore what `_save` returned."""
        raise NotImplementedError

    # Hooks that a task may implement.

    def _outcome(self) -> State:
        """The state after the physics of the last step (see `outcome`)."""
        return self.state()

    def physics(self) -> Callable[[np.ndarray], None] | None:
        """A function that runs the physics engine alone on actions [N, A], for benchmarks."""
        return None

    def pose(self, i: int) -> "tuple[MjModel, np.ndarray] | None":
        """MuJoCo model and qpos [nq] of environment i, for the camera view; None without MuJoCo."""
        return None
