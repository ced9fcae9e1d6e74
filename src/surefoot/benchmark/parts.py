"""The parts of training as calls that can be timed, in any size."""

import tracemalloc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.on_policy import numpy_policy
from surefoot.algorithms.seeds import over_seeds
from surefoot.learn.ppo import PPOConfig
from surefoot.runs.setup import Setup, new_setup
from surefoot.use import programs
from surefoot.use.programs import Part, compiled
from surefoot.world.ensemble import EnsembleConfig

TASK = "PointGoal"
STEPS = 20
"""Steps of each environment that are collected per call."""
SMALL = MBPPOConfig(
    model="ego", horizon=20, rollouts=96, gate="none", real_share=0.0,
    ppo=PPOConfig(hidden=(64, 64), epochs=2, critic_epochs=2, minibatches=4, kl_stop=None),
    # A fixed number of gradient steps, however many rows there are.
    ensemble=EnsembleConfig(members=4, elites=3, hidden=(64, 64), max_steps=40, patience=10_000),
)  # fmt: skip
"""Fixed, so that measurements of different versions compare."""


@dataclass
class Parts:
    """The parts of MBPPO-Lagrangian on a task, untrained, which costs the same."""

    config: MBPPOConfig = SMALL
    seeds: int = 1
    task: str = TASK

    def __post_init__(self) -> None:
        self.setup: Setup = new_setup(
            self.task, None, "", jax.default_backend(), range(self.seeds), self.config, {}, {}
        )
        self.config = self.setup.config
        self.problem = self.setup.problem(self.setup.make_envs(1), 1)

    def state(self) -> mbppo.State:
        """What all seeds begin with."""
        return programs.new_state(self.config, self.problem)

    def collect(self, environments: int) -> Part:
        """Real steps of `environments` for each seed."""
        env = self.setup.make_envs(self.seeds * environments)
        collector = Collector(env, self.setup.seeds, environments, self.problem.model)
        policy = numpy_policy(self.state().learner, self.problem.actions)

        def call() -> object:
            actor = draw_from(policy, collector.rngs, environments, STEPS)
            return collector.collect(actor, self.problem.actions, STEPS)

        def memory() -> int:
            tracemalloc.start()
            call()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return peak

        return Part(call, self.seeds * environments * STEPS, "real steps", memory)

    def fit(self, rows: int) -> Part:
        """Gradient steps of the ensembles, with `rows` real steps for each seed."""
        return programs.fit(self.config, self.problem, self.state(), rows)

    def practise(self) -> Part:
        """One pass of practice: rollouts, advantages, updates of policy and critics."""
        config, problem, many = self.config, self.problem, self.seeds
        program = over_seeds(
            lambda *args: mbppo.practise(config, problem, *args), many, shared=(3, 4),
            whole_loops=True,
        )  # fmt: skip
        nothing = jnp.zeros((many, 1, problem.task_model.record_size))
        past = mbppo.Past(nothing, nothing, jnp.zeros(many, jnp.int32))
        cost = jnp.zeros((many, problem.constraints))
        state = self.state()
        real = mbppo.RealBatch(cost, cost, jnp.zeros(many, bool), state.learner.actor, None)
        length = mbppo.horizon(config, problem)
        reach = jnp.full(many, length, jnp.int32)
        args = (state, past, real, jnp.array(True), mbppo.pace(config, 0.0), reach)
        return compiled(program, args, many * config.rollouts * length, "imagined steps")

    def imagination(self) -> tuple[Part, Part]:
        """Rollouts alone, and updates on them alone, both of the first seed."""
        return programs.imagination(self.config, self.problem, self.state())
