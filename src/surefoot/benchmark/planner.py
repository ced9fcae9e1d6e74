"""How fast planning is, and how long a run would take in which every step is planned."""

from collections.abc import Callable, Iterable, Iterator

import jax
from jaxtyping import Array, Float, Key

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.mbppo_lagrangian import State
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.algorithms.trainer import Problem
from surefoot.benchmark.imagination import describe_model
from surefoot.benchmark.timing import Row, fastest
from surefoot.core.config import to_dict
from surefoot.core.spaces import ActionSpec
from surefoot.learn import sac
from surefoot.runs.setup import new_setup
from surefoot.world import ensemble as ensembles
from surefoot.world import planner
from surefoot.world.ensemble import Ensemble
from surefoot.world.imagination import LearnedWorld
from surefoot.world.model import TaskModel
from surefoot.world.planner import Plan
from surefoot.world.steering import plan_function

TASK = "PointGoal"
NUM_ENVS = {"cpu": (1, 4), "gpu": (1, 13, 104, 832)}
MOST_ENVS = 100_000
STEPS = 450_000
PAPER_SECONDS = 183_156
"""What the paper's safe-LOOP took for so many steps."""


def benchmark(num_envs: tuple[int, ...] | None = None, task: str | None = None) -> Iterator[Row]:
    """Plans per second of safe-LOOP with the paper's settings, for so many environments at once.

    With a `task`, those of the safety filter in MBPPO-Lagrangian's default preset.

    One compiled call plans a step of all of them: the policy's proposals, all iterations through
    all elites, terminal values. Networks are untrained, which costs the same. Compiling is not
    timed, and the fastest of several windows counts. `seconds` is what the plans of 450,000 steps
    would take at that rate; the paper's time is that of its whole run, which also steps and learns.
    """
    chosen = num_envs or NUM_ENVS.get(jax.default_backend(), NUM_ENVS["gpu"])
    for n in chosen:
        if not 1 <= n <= MOST_ENVS:
            raise ValueError(f"num_envs={n} must be from 1 to {MOST_ENVS:,}")
    if task is not None:
        yield from filter_benchmark(task, chosen)
        return
    setup = new_setup(TASK, "safe-loop", "paper", jax.default_backend(), [0], None, {}, {})
    config, problem = setup.config, setup.problem(setup.make_envs(1), 1)
    for n in chosen:
        per_second = plans_per_second(config, problem.task_model, problem.actions, n)
        yield {
            **describe_model(TASK, config),
            "planner": to_dict(config.planner),
            "weights": "untrained",
            "num_envs": n,
            "plans_per_second": per_second,
            "steps": STEPS,
            "seconds": STEPS / per_second,
            "paper_seconds": PAPER_SECONDS,
            "ratio": PAPER_SECONDS * per_second / STEPS,
        }


def filter_benchmark(task: str, num_envs: Iterable[int]) -> Iterator[Row]:
    """Plans per second of the safety filter of a task, with untrained networks."""
    setup = new_setup(task, "mbppo-lagrangian", "default", jax.default_backend(), [0], None, {}, {})
    config, env = setup.config, setup.make_envs(1)
    for n in num_envs:
        problem = setup.problem(env, n)
        learned = jax.jit(lambda key, problem=problem: mbppo.init(config, problem, key))
        state, model = learned(jax.random.key(0)), problem.task_model
        records = model.initial_records(jax.random.key(2), n)
        if records is None:
            raise ValueError(f"task={task!r} must know its initial states to be benchmarked")
        mean = planner.initial_mean(config.filter, problem.actions, n)

        @jax.jit
        def plan(
            state: State, records: Float[Array, "n R"], mean: Float[Array, "n H A"],
            key: Key[Array, ""], problem: Problem = problem,
        ) -> Plan:  # fmt: skip
            restore_key, plan_key = jax.random.split(key)
            states = problem.task_model.restore(restore_key, records)
            learner, world = state.learner, problem.world(state.ensemble)
            value = lambda obs, key: learner.values(learner.scaled(obs))[..., 0]
            plan = plan_function(config.filter)
            return plan(config.filter, world, states, mean, learner.sample, value, plan_key)

        args = state, records, mean, jax.random.key(1)
        seconds = fastest(lambda plan=plan, args=args: jax.block_until_ready(plan(*args)))
        yield {
            **describe_model(task, config),
            "planner": to_dict(config.filter),
            "weights": "untrained",
            "num_envs": n,
            "plans_per_second": n / seconds,
        }


def plans_per_second(
    config: SafeLoopConfig, model: TaskModel, actions: ActionSpec, n: int
) -> float:
    """How many plans n environments make together in a second."""
    return n / fastest(plan_call(config, model, actions, n))


def plan_call(
    config: SafeLoopConfig, model: TaskModel, actions: ActionSpec, n: int
) -> Callable[[], Plan]:
    """A call that plans one step of n environments."""
    width = model.feature_size + actions.size
    keys = jax.random.split(jax.random.key(0), 3)
    learner = sac.init(config.sac, model.observation_size, actions, keys[0])
    ensemble = ensembles.init(config.ensemble, width, model.target_size, model.binary_size, keys[1])
    records = model.initial_records(keys[2], n)
    assert records is not None  # the task's model knows its initial states
    mean = planner.initial_mean(config.planner, actions, n)

    @jax.jit
    def plan(
        learner: sac.Learner, ensemble: Ensemble, records: Float[Array, "n R"], key: Key[Array, ""]
    ) -> Plan:
        restore_key, plan_key = jax.random.split(key)
        states = model.restore(restore_key, records)
        policy = lambda obs, key: sac.to_box(actions, learner.sample(obs, key))
        return planner.plan(
            config.planner,
            LearnedWorld(model, actions, ensemble),
            states,
            mean,
            policy,
            learner.value,
            plan_key,
        )

    key = jax.random.key(1)
    return lambda: jax.block_until_ready(plan(learner, ensemble, records, key))
