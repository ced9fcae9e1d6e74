"""The parts of training as calls that can be timed, in any size."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.on_policy import numpy_policy
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.core.arrays import Metrics, RandomKey, Tree
from surefoot.learn import ppo
from surefoot.learn.actor_critic import Batch, Learner, prepare
from surefoot.learn.ppo import PPOConfig
from surefoot.runs.setup import Setup, new_setup
from surefoot.world import fitting
from surefoot.world.ensemble import Ensemble, EnsembleConfig
from surefoot.world.imagination import Rollout, imagine
from surefoot.world.model import State

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


@dataclass(frozen=True)
class Part:
    """Something that training does."""

    call: Callable[[], object]
    count: int
    """What one call does, in `unit`."""
    unit: str
    memory: Callable[[], int]
    """Bytes that one call needs, at its peak."""


def compiled(program: jax.stages.Wrapped, args: tuple[Tree, ...], count: int, unit: str) -> Part:
    """A jitted program as a part; its memory is that of arguments, results and temporaries."""
    ready = program.lower(*args).compile()

    def memory() -> int:
        sizes = ready.memory_analysis()
        parts = (f"{kind}_size_in_bytes" for kind in ("argument", "output", "temp"))
        return sum(int(getattr(sizes, part)) for part in parts)

    return Part(lambda: jax.block_until_ready(ready(*args)), count, unit, memory)


@dataclass
class Parts:
    """The parts of MBPPO-Lagrangian on PointGoal, untrained, which costs the same."""

    config: MBPPOConfig = SMALL
    seeds: int = 1

    def __post_init__(self) -> None:
        self.setup: Setup = new_setup(
            TASK, None, "", jax.default_backend(), range(self.seeds), self.config, {}, {}
        )
        self.config = self.setup.config
        self.problem = self.setup.problem(self.setup.make_envs(1), 1)

    def _state(self) -> mbppo.State:
        begin = over_seeds(lambda key: mbppo.init(self.config, self.problem, key), self.seeds)
        return begin(seed_keys(self.setup.seeds))

    def collect(self, environments: int) -> Part:
        """Real steps of `environments` for each seed."""
        env = self.setup.make_envs(self.seeds * environments)
        collector = Collector(env, self.setup.seeds, environments, self.problem.model)
        policy = numpy_policy(self._state().learner, self.problem.actions)

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
        model, config = self.problem.task_model, self.config.ensemble
        rng = np.random.default_rng(0)
        sizes = (model.feature_size + self.problem.actions.size, model.target_size)
        x, y = (rng.standard_normal((self.seeds, rows, n), np.float32) for n in sizes)
        program = over_seeds(lambda *args: fitting.fit(config, *args), self.seeds, shared=(3,))
        args = (self._state().ensemble, x, y, jnp.int32(rows), seed_keys(self.setup.seeds))
        args = jax.device_put(args)
        return compiled(program, args, self.seeds * config.max_steps, "gradient steps")

    def practise(self) -> Part:
        """One pass of practice: rollouts, advantages, updates of policy and critics."""
        config, problem, many = self.config, self.problem, self.seeds
        program = over_seeds(
            lambda *args: mbppo.practise(config, problem, *args), many, shared=(3, 4)
        )
        nothing = jnp.zeros((many, 1, problem.task_model.record_size))
        past = mbppo.Past(nothing, nothing, jnp.zeros(many, jnp.int32))
        cost = jnp.zeros((many, problem.constraints))
        state = self._state()
        real = mbppo.RealBatch(cost, cost, jnp.zeros(many, bool), state.learner.actor, None)
        length = mbppo.horizon(config, problem)
        reach = jnp.full(many, length, jnp.int32)
        args = (state, past, real, jnp.array(True), mbppo.pace(config, 0.0), reach)
        return compiled(program, args, many * config.rollouts * length, "imagined steps")

    def imagination(self) -> tuple[Part, Part]:
        """Rollouts alone, and updates on them alone, both of the first seed."""
        config, problem = self.config, self.problem
        length = mbppo.horizon(config, problem)

        def roll(
            learner: Learner, ensemble: Ensemble, states: State, key: RandomKey
        ) -> tuple[Rollout, State]:
            return imagine(problem.world(ensemble), learner.sample, states, length, key)

        def update(learner: Learner, batch: Batch, key: RandomKey) -> tuple[Learner, Metrics]:
            rows, _ = prepare(config.ppo, learner, batch)
            return ppo.update(config.ppo, learner, rows, jnp.zeros(problem.constraints), key)

        state, key = jax.tree.map(lambda x: x[0], self._state()), jax.random.key(1)
        model = problem.task_model
        starts = model.initial_records(key, config.rollouts)
        assert starts is not None  # the model knows its task's initial states
        args = (state.learner, state.ensemble, model.restore(key, starts), key)
        rollout, _ = jax.jit(roll)(*args)
        batch = mbppo.to_batch(rollout, rollout.alive, None, jnp.array(True))
        count = config.rollouts * length
        return (
            compiled(jax.jit(roll), args, count, "imagined steps"),
            compiled(jax.jit(update), (state.learner, batch, key), count, "imagined steps"),
        )
