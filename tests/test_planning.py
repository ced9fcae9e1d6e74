"""A planner on top of a policy: it looks ahead, or intervenes where the policy would do harm."""

import json

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box
from PIL import Image
from scipy.optimize import linprog

import surefoot
from harness import TASK, start
from in_memory import evaluate_policy
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.collect import Collector, Now
from surefoot.algorithms.planning import PlannedActor, batch_size
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.algorithms.seeds import pick_seeds, seed_keys
from surefoot.algorithms.trainer import Planning, Problem
from surefoot.benchmark import planner as benchmark_planner
from surefoot.cli.runs import full_plan_option
from surefoot.core.policy import Policy
from surefoot.core.spaces import action_spec
from surefoot.envs.gym.adapters import adapt
from surefoot.envs.task import TASKS
from surefoot.learn.sac import SACLearnerConfig
from surefoot.runs.checkpoint import Checkpoint, newest_sound, write_checkpoint
from surefoot.runs.keeper import policy_in
from surefoot.runs.train import EVALUATION_SEED
from surefoot.use import evaluate as use_evaluate
from surefoot.use import film
from surefoot.use.run import load_model
from surefoot.world.black_box import BlackBox
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.planner import PlannerConfig
from toys import linear_ensemble
from untrained import untrained_run

DT, WALL = 0.2, 1.0


class Wall(gym.Env):
    """A cart that pays for how far right it is, and costs while it is in the wall at 1."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)
    max_episode_steps = 30

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x, self.v = 0, self.np_random.uniform(-0.5, 0.0), 0.0
        return np.array([self.x, self.v]), {}

    def step(self, action):
        self.v += DT * float(action[0])
        self.x += DT * self.v
        self.t += 1
        truncated = self.t == self.max_episode_steps
        info = {"cost": float(self.x > WALL)}
        return np.array([self.x, self.v]), self.x, False, truncated, info


KNOWN = BlackBox(
    2,
    terminates=False,
    reward_fn=lambda s, a, t: t[0],
    cost_fn=lambda s, a, t: (t[:1] > WALL) * 1.0,
)
PUSH = np.array([[0.8], [-0.3]], np.float32)  # how hard each seed's policy pushes, in the mean
CONFIG = PlannerConfig(samples=40, particles=1, iterations=6, fewest_safe=4, kappa=10.0)


def carts(n):
    return adapt(Wall, cost="cost", num_envs=n)


def policies():
    """Two seeds: one heads for the wall, the other away from it. Both with some noise."""
    zero = np.zeros((2, 2, 1), np.float32)
    low, high = np.array([-1.0], np.float32), np.array([1.0], np.float32)
    return Policy((zero,), (PUSH,), np.full((2, 1), -2.0, np.float32), low, high, kind="gaussian")


ACTIONS = action_spec(Wall.action_space)
MATRIX = np.array([[0.0, 0.0], [DT, 0.0], [DT**2, DT]])


def generators():
    return [np.random.default_rng(seed) for seed in (0, 1)]


def planned_actor(mode, rngs, n=5, on_value=lambda states: None):
    """An actor for two seeds with n carts each that plans with the true model."""
    exact = linear_ensemble(MATRIX[None], np.zeros((1, 2)), 2)

    def value(push, obs, key):
        on_value(len(obs))
        return 8 * obs[:, 0]

    planning = Planning(
        jax.tree.map(lambda x: jnp.stack([x, x]), exact),
        jnp.asarray(PUSH),
        lambda push, obs, key: push + np.exp(-2.0) * jax.random.normal(key, (len(obs), 1)),
        lambda push, obs, key: jnp.broadcast_to(push, (len(obs), 1)),
        value,
    )
    problem = Problem((0, 1), n, 30, 2, ACTIONS, ("cost",), KNOWN)
    policy = draw_from(policies(), rngs, n, 30)
    return PlannedActor(CONFIG, problem, planning, mode, policy, seed_keys([7, 8]))


def drive(mode=None):
    """What 2 seeds x 5 carts do, [S, T, n, …], and the planner's report."""
    collector = Collector(carts(10), [0, 1], 5, KNOWN)
    if mode is None:
        return collector.collect(draw_from(policies(), collector.rngs, 5, 30), ACTIONS, 30), None
    actor = planned_actor(mode, collector.rngs)
    return collector.collect(actor, ACTIONS, 30), actor.report()


@pytest.fixture(scope="module")
def alone():
    return drive()[0]


def test_a_filter_stops_a_bold_policy_and_leaves_a_safe_one_alone(alone):
    seen, report = drive("filter")
    assert alone.cost[0].sum(0).min() > 5  # without a filter it ends in the wall
    assert seen.cost.sum() == 0
    np.testing.assert_array_equal(seen.action[1], alone.action[1])
    assert (seen.next_obs[0, ..., 0].max(0) > 0.6).all()  # it still goes as far as it may
    replaced = (seen.action[0] != alone.action[0]).any(-1).mean()
    assert 0.3 < replaced < 1
    # After the first intervention a policy meets other states, but its noise is the same.
    np.testing.assert_allclose(report.followed, replaced / 2, atol=1e-9)
    assert report.safe == 1.0 and report.plans_per_second > 0


def test_only_those_in_danger_are_planned_for():
    """Of ten carts three are next to the wall: the batch has three, and all get their plans."""
    sizes = []
    near = np.full((2, 10, 2), (-3.0, 0.0), np.float32)
    near[0, [1, 4, 8]] = 0.8, 0.3
    now = Now(0, near, np.zeros((2, 10), bool), None, KNOWN)
    planned_actor("look-ahead", generators(), 10, sizes.append)(now)
    for_all = max(sizes)
    sizes.clear()
    actor = planned_actor("filter", generators(), 10, sizes.append)
    action = actor(now)
    assert max(sizes) / for_all == 3 / 10
    own = draw_from(policies(), generators(), 10, 30)(now)
    changed = (action != own).any(-1)
    np.testing.assert_array_equal(np.argwhere(changed), [[0, 1], [0, 4], [0, 8]])
    assert (action[changed] < 0).all()  # they brake
    assert actor.report().followed == 3 / 20


@pytest.mark.parametrize(
    ("n", "needed", "size"),
    [
        (100, 100, 100),
        (100, 51, 100),
        (100, 50, 50),
        (100, 3, 4),
        (100, 1, 1),
        (1, 1, 1),
        (5, 3, 3),
    ],
)
def test_batch_sizes_are_few_and_large_enough(n, needed, size):
    assert batch_size(n, needed) == size


def test_a_look_ahead_does_better_than_its_policy_and_costs_nothing(alone):
    seen, report = drive("look-ahead")
    assert seen.cost.sum() == 0
    assert (seen.reward[1].sum(0) > alone.reward[1].sum(0) + 10).all()
    best = [optimum(x) for x in seen.obs[:, 0, :, 0].ravel()]
    share = seen.reward.sum(1).ravel() / best
    assert share.min() > 0.85 and share.max() < 1.001
    assert report.followed == 1.0 and report.safe == 1.0


def optimum(x):
    """The most that 30 steps from x, at rest, can pay without entering the wall."""
    t = np.arange(30)
    gain = DT**2 * np.maximum(t[:, None] - t + 1, 0)  # of the place at t by the push at u
    limits = {"A_ub": gain, "b_ub": np.full(30, WALL - x), "bounds": (-1, 1)}
    return 30 * x - linprog(-gain.sum(0), **limits).fun


# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two seeds that have learned nothing, on RCCar."""
    path = tmp_path_factory.mktemp("planning") / "run"
    return untrained_run(path, "RCCar", "ego")


SMALL = (
    "--episodes=2", "--json", "--planner.samples=4", "--planner.iterations=2",
    "--planner.fewest-safe=1", "--planner.particles=1",
)  # fmt: skip


def test_a_filter_with_a_high_threshold_changes_nothing(run, call):
    code, out, err = call("evaluate", str(run), "--plan=filter", *SMALL, "--planner.horizon=2",
                          "--planner.cost-threshold=1e6")  # fmt: skip
    assert code == 0 and not err
    found = json.loads(out)
    plan = found.pop("plan")
    assert plan["how"] == "filter" and plan["followed"] == 0.0 and plan["safe"] is None
    assert plan["planner"]["cost_threshold"] == 1e6 and plan["planner"]["samples"] == 4
    last, _ = newest_sound(run / "checkpoints")
    env = surefoot.make("RCCar", num_envs=4, **TASK)
    alone = evaluate_policy(env, policy_in(last), [3, 4], 2, EVALUATION_SEED, 1.0)
    assert found == alone.to_dict()


def test_evaluate_with_a_look_ahead_as_a_user_types_it(run, call):
    code, out, err = call("evaluate", str(run), "--plan", *SMALL)
    assert code == 0 and not err
    found = json.loads(out)
    assert [row["seed"] for row in found["seeds"]] == [3, 4]
    assert found["plan"]["how"] == "look-ahead" and found["plan"]["followed"] == 1.0
    assert found["plan"]["plans_per_second"] > 0 and 0 <= found["plan"]["safe"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["look-ahead", "filter"])
def test_a_film_shows_what_is_evaluated(run, monkeypatch, how):
    """The one episode of the second seed, planned by that seed's model."""
    rewards = []

    def frames_of(env, step, *_):
        plain = env.step
        env.step = lambda action: rewards.append(plain(action)) or rewards[-1]
        for _ in range(env.max_episode_steps):
            step()
            yield np.zeros((2, 2, 3), np.uint8)

    small = PlannerConfig(samples=4, particles=1, iterations=2, fewest_safe=1, horizon=2)
    monkeypatch.setattr(film, "frames_of", frames_of)
    monkeypatch.setattr(film, "save_clip", lambda frames, *_, **__: list(frames))
    monkeypatch.setattr(use_evaluate, "default_planner", lambda *_: small)
    film.film(run, "x.gif", 1, seed=7, plan=how)
    found = surefoot.evaluate(run, 1, 7, plan=how, planner=small)
    first, second = (row["reward"] for row in found["seeds"])
    assert sum(reward[1][0] for reward in rewards) == pytest.approx(second, rel=1e-4)
    assert abs(first - second) > 0.01 * abs(second)


@pytest.mark.slow
def test_watch_a_planned_run_as_a_user_types_it(run, call, tmp_path):
    clip = tmp_path / "x.gif"
    words = ("--plan", "--steps", "2", "--every", "1", "--size", "64", "--out", str(clip))
    code, _, err = call("watch", str(run), *words)
    assert code == 0, err
    with Image.open(clip) as shown:
        assert shown.n_frames == 2
    code, _, err = call("watch", str(run), *words, "--which", "2")
    assert code == 2 and "which=2 must be from 0 to 1" in err
    code, _, err = call("watch", "RCCar", *words)
    assert code == 2 and "'RCCar' is not a run's folder" in err


def test_plans_are_proposed_by_the_policy_and_valued_by_the_reward_critic(run):
    learned = load_model(run, "plan with")
    planning, arrays = learned.planning, learned.checkpoint.arrays
    size = learned.setup.make_envs(1).single_observation_space.shape[0]
    obs = np.random.default_rng(0).normal(size=(3, size)).astype(np.float32)
    for s in range(2):
        learner = pick_seeds(planning.learner, s)
        mode = planning.mode(learner, jnp.asarray(obs), jax.random.key(0))
        policy = policy_in(learned.checkpoint).seed(s)
        np.testing.assert_allclose(mode, policy.heads(obs), atol=1e-5)
        x = np.clip(obs / np.sqrt(1 + 1e-8), -10, 10)  # of statistics without data
        for layer in range(2):
            place = "trainer/state/learner/critics/network"
            w, b = (arrays[f"{place}/{kind}/{layer}"][s, 0] for kind in ("weights", "biases"))
            x = x @ w + b if layer else np.tanh(x @ w + b)
        value = planning.value(learner, jnp.asarray(obs), jax.random.key(0))
        np.testing.assert_allclose(value, x[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    "words, full",
    [
        ("", ""),
        ("run --plan", "run --plan look-ahead"),
        ("--plan . --json", "--plan look-ahead . --json"),
        ("run --plan --json", "run --plan look-ahead --json"),
        ("run --plan filter", "run --plan filter"),
        ("run --plan=filter", "run --plan=filter"),
        ("run --plan filtre", "run --plan filtre"),
        ("run", "run"),
    ],
)
def test_plan_alone_means_look_ahead(words, full):
    assert full_plan_option(words.split()) == full.split()


def test_what_cannot_be_planned_is_explained(run, tmp_path, call):
    with pytest.raises(ValueError, match=r"plan='ahead' is unknown.*look-ahead, filter"):
        surefoot.evaluate(run, plan="ahead")
    with pytest.raises(ValueError, match="planner is given, but plan is not"):
        surefoot.evaluate(run, planner=PlannerConfig(horizon=4))
    code, _, err = call("evaluate", str(run), "--plan", "filtre")
    assert code == 2 and "filtre" in err
    code, _, err = call("evaluate", str(run), "--plan", "--planner.horizon=0")
    assert code == 2 and "horizon=0 must be at least 1" in err
    free = untrained_run(tmp_path / "free", "RCCar", algorithm="cpo")
    code, _, err = call("evaluate", str(free), "--plan")
    assert code == 2 and "has no model to plan with" in err and "CPO" in err
    last, _ = newest_sound(run / "checkpoints")
    meta = {**last.meta, "info": {**last.meta["info"], "task": None}}
    (tmp_path / "own").mkdir()
    write_checkpoint(tmp_path / "own" / "checkpoints", Checkpoint(meta, last.arrays))
    code, _, err = call("evaluate", str(tmp_path / "own"), "--plan")
    assert code == 2 and "made by a Python function" in err


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["mbppo-lagrangian", "safe-loop"])
def test_runs_that_were_trained_are_planned_with(algorithm, tmp_path):
    run = start(algorithm, tmp_path / "run", 2)
    last, _ = newest_sound(run / "checkpoints")
    env = surefoot.make("PointGoal", num_envs=4, observation="ego", **TASK)
    # Not with `evaluate`, which looks ahead in a run of safe-LOOP.
    alone = evaluate_policy(env, policy_in(last), [0, 1], 2, EVALUATION_SEED, 1.0).to_dict()
    small = PlannerConfig(horizon=3, samples=4, iterations=1, fewest_safe=1, cost_threshold=1e6)
    found = surefoot.evaluate(run, 2, plan="filter", planner=small)
    assert found.pop("plan")["followed"] == 0.0 and found == alone
    assert surefoot.evaluate(run, 2, plan="look-ahead")["plan"]["followed"] == 1.0


def test_benchmark_planner(call, monkeypatch):
    monkeypatch.setattr(benchmark_planner, "plans_per_second", lambda *args: 4.0 * args[-1])
    code, out, _ = call("benchmark", "planner", "--num-envs", "2", "10", "--json")
    assert code == 0
    two, ten = json.loads(out)
    assert two["plans_per_second"] == 8.0 and ten["plans_per_second"] == 40.0
    assert ten["seconds"] == 11_250.0 and ten["ratio"] == pytest.approx(183_156 / 11_250)
    assert ten["planner"]["horizon"] == 8 and ten["planner"]["samples"] == 100
    assert ten["members"] == 8 and ten["elites"] == 6 and ten["hidden"] == [200] * 4
    code, out, _ = call("benchmark", "planner", "--num-envs", "10")
    assert code == 0 and "40.0 plans/s" in out and "11,250 s" in out and "untrained" in out
    code, _, err = call("benchmark", "planner", "--num-envs", "0")
    assert code == 2 and "num_envs=0 must be from 1 to 100,000" in err


@pytest.mark.slow
def test_the_planner_that_is_timed_plans_for_all(monkeypatch):
    seen = []
    monkeypatch.setattr(benchmark_planner, "fastest", lambda call: seen.append(call()) or 0.5)
    config = SafeLoopConfig(
        planner=PlannerConfig(horizon=2, samples=4, fewest_safe=1, iterations=1),
        ensemble=EnsembleConfig(members=2, elites=2, hidden=(4,)),
        sac=SACLearnerConfig(hidden=(4,)),
    )
    env = surefoot.make("PointGoal", observation="paper")
    model = TASKS["PointGoal"].models["paper"](env)
    actions = action_spec(env.single_action_space)
    assert benchmark_planner.plans_per_second(config, model, actions, 3) == 6.0
    assert seen[0].action.shape == (3, 2) and np.isfinite(seen[0].value).all()
