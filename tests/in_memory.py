"""Training and evaluation in memory: the shared loop without a run folder."""

from surefoot.algorithms import evaluation, loop
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.algorithm import algorithm_of
from surefoot.runs.setup import new_setup


def setup_of(config, source, seeds=(0,), options=None, known=None):
    """The setup of a whole config on whatever `find_task` takes, such as an environment's class."""
    return new_setup(
        source, algorithm_of(config), "default", "cpu", seeds, config, {}, options or {},
        known=known,
    )  # fmt: skip


def new_training(config, source, seeds=(0,), options=None, known=None, saved=None):
    """A run of the config's algorithm at its beginning, or continued from a snapshot."""
    setup = setup_of(config, source, seeds, options, known)
    steps = setup.problem(setup.make_envs(1), 1).episode_steps
    environments = setup.algorithm.environments(setup.config, steps)
    env = setup.make_envs(len(seeds) * environments)
    problem = setup.problem(env, environments)
    return loop.begin(setup.algorithm, setup.config, problem, env, saved)


def epochs(config, source, seeds=(0,), options=None, known=None, saved=None):
    """The epochs of such a run."""
    return loop.epochs(new_training(config, source, seeds, options, known, saved))


def evaluate_policy(env, policy, seeds, episodes, seed, cost_limit, deterministic=False):
    """Fresh episodes of a policy with a leading axis of seeds."""
    make_actor = lambda rngs, steps: draw_from(policy, rngs, episodes, steps, deterministic)
    limits = cost_limit if isinstance(cost_limit, tuple) else (cost_limit,)
    return evaluation.evaluate(env, make_actor, seeds, episodes, seed, limits, deterministic)
