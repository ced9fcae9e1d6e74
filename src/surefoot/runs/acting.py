"""What acts in fresh episodes of a run: its policies, or a planner on top of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot.algorithms import evaluation
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.algorithm import Mode
from surefoot.algorithms.collect import Actor, Generators, Now
from surefoot.algorithms.planning import PlannedActor
from surefoot.algorithms.seeds import seed_keys
from surefoot.algorithms.trainer import Planning
from surefoot.core.policy import Policy
from surefoot.core.spaces import action_spec
from surefoot.envs.base import TaskEnv
from surefoot.runs.folder import Values
from surefoot.runs.setup import Setup

EVALUATION_EPISODES = 50
PLANNED_EPISODES = 10
"""If every step is planned."""
EVALUATION_SEED = 10_000_000
"""Added to the seeds, so that evaluation meets other episodes than training."""


@dataclass
class Acting:
    """The seeds of a setup in fresh environments, and what acts for them."""

    setup: Setup
    policy: Policy
    """Of all seeds of the setup."""
    per_seed: int
    """Environments of each seed."""
    seed: int
    """Added to each seed."""
    deterministic: bool = False
    planning: Planning | None = None
    """What a planner needs, and its settings; None if the policies act alone."""
    mode: Mode = "look-ahead"
    render_mode: str | None = None
    before_step: Callable[[], object] = lambda: None
    """Called before every step of `evaluate`; may raise."""
    act: Callable[[np.ndarray], np.ndarray] | None = None
    """Acts instead of the policy: actions [N, A], or [N] choices, for observations [N, D]."""

    def __post_init__(self) -> None:
        count = len(self.setup.seeds) * self.per_seed
        self.env = self.setup.make_envs(count, render_mode=self.render_mode)
        check_sizes(self.setup, self.env, self.policy if self.act is None else None)
        plans = self.planning is not None and self.planning.config is not None
        self.problem = self.setup.problem(self.env, self.per_seed) if plans else None
        self.model = self.problem and self.problem.model
        self.planned: PlannedActor | None = None

    def make_actor(self, rngs: Generators, steps: int) -> Actor:
        """What acts for `steps` steps, with a generator per seed."""
        policy = draw_from(self.policy, rngs, self.per_seed, steps, self.deterministic)
        if (given := self.act) is not None:
            policy = lambda now: _given_actions(given, now.obs)
        if self.problem is None or self.planning is None or self.planning.config is None:
            return policy
        keys = seed_keys([(self.seed + s) % 2**32 for s in self.setup.seeds])
        self.planned = PlannedActor(
            self.planning.config, self.problem, self.planning, self.mode, policy, keys,
            self.deterministic,
        )  # fmt: skip
        return self.planned

    def evaluate(self) -> Values:
        """Evaluate one episode in every environment; `plan` reports what planning amounted to."""

        def make_actor(rngs: Generators, steps: int) -> Actor:
            actor = self.make_actor(rngs, steps)

            def act(now: Now) -> np.ndarray:
                self.before_step()
                return actor(now)

            return act

        result = evaluation.evaluate(
            self.env, make_actor, self.setup.seeds, self.per_seed, self.seed,
            self.setup.config.cost_limit, self.deterministic, self.model,
        ).to_dict()  # fmt: skip
        return {**result, "plan": self.planned.to_dict()} if self.planned else result


def _given_actions(act: Callable[[np.ndarray], np.ndarray], obs: np.ndarray) -> np.ndarray:
    """Actions [S, n, …] of a function of observations [N, D]."""
    actions = np.asarray(act(obs.reshape(-1, obs.shape[-1])))
    if len(actions) != obs.shape[0] * obs.shape[1]:
        count = obs.shape[0] * obs.shape[1]
        raise ValueError(f"policy returned {len(actions)} actions for {count} observations")
    return actions.reshape(*obs.shape[:2], *actions.shape[1:])


def check_sizes(setup: Setup, env: TaskEnv, policy: Policy | None) -> None:
    """Raise a ValueError unless policy and limits fit the environment: it may have changed."""
    sizes = {"cost": (len(env.cost_names), len(setup.config.cost_limit))}
    if policy is not None:
        seen = policy.weights[0].shape[-2]
        sizes["observation"] = env.single_observation_space.shape[0], seen
        sizes["action"] = action_spec(env.single_action_space).size, policy.actions
    for what, (now, before) in sizes.items():
        if now != before:
            raise ValueError(
                f"the run was trained with {what}s of size {before}, but those of "
                f"{setup.task.name} have {now}: the environment has changed"
            )
