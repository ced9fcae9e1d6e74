"""Plans of a robot with many actions: its policy is shown goals in other directions."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.algorithms.planning import default_planner
from surefoot.benchmark import planner as benchmark_planner
from surefoot.core.spaces import ActionSpec
from surefoot.envs.navigation.goal_model import SHOWN_DISTANCE, goal_model
from surefoot.envs.navigation.goal_rules import GoalConfig
from surefoot.envs.task import find_task
from surefoot.world import planner
from surefoot.world.black_box import BlackBox
from surefoot.world.imagination import LearnedWorld
from surefoot.world.planner import PlannerConfig
from surefoot.world.steering import plan_function, steer
from toys import linear_ensemble

CONFIG = PlannerConfig(kind="steer", horizon=6, particles=1, directions=8, value_weight=0.0)
ACTIONS = ActionSpec(2, low=(-1.0, -1.0), high=(1.0, 1.0))
KEY = jax.random.key(0)


class Field(BlackBox):
    """A point in the plane that moves by its action; a hazard lies in the east, the goal too."""

    def observe_toward(self, state, angle):
        return self.observe(state).at[2:].set(jnp.stack([jnp.cos(angle), jnp.sin(angle)]))


def world(hazard=0.3, model=Field):
    """Observation: place and direction of the goal. The policy goes where the goal is."""
    known = model(
        4,
        terminates=False,
        reward_fn=lambda s, a, t: t[0] - s[0],
        cost_fn=lambda s, a, t: ((t[:1] > hazard) & (jnp.abs(t[1]) < 10)) * 1.0,
    )
    move = np.zeros((1, 6, 4))
    move[0, 4, 0] = move[0, 5, 1] = 0.1
    return LearnedWorld(known, ACTIONS, linear_ensemble(move, np.zeros((1, 4)), 4))


def policy(obs, key):
    return obs[:, 2:]


def states(*places):
    return jnp.array([[x, y, 1.0, 0.0] for x, y in places], jnp.float32)


def test_the_best_safe_direction_is_taken():
    """East is best and far from the hazard at first. Near it, north and south are as good."""
    there = states((-5.0, 0.0), (0.25, 0.0))
    mean = planner.initial_mean(CONFIG, ACTIONS, 2)
    plan = plan_function(CONFIG)(CONFIG, world(), there, mean, policy, None, KEY)
    np.testing.assert_allclose(plan.action[0], [1, 0], atol=1e-6)
    assert plan.value[0] == pytest.approx(0.6, abs=1e-5) and plan.safe.all()
    assert abs(plan.action[1, 0]) < 1e-6 and plan.worst_cost[1] == 0


def test_rest_is_a_plan_and_the_lowest_cost_wins_if_none_is_safe():
    """A policy that always goes east can only be stopped. Within the hazard nothing is safe."""
    east = lambda obs, key: jnp.broadcast_to(jnp.array([1.0, 0.0]), (len(obs), 2))
    mean = planner.initial_mean(CONFIG, ACTIONS, 1)
    plan = steer(CONFIG, world(), states((0.25, 0.0)), mean, east, None, KEY)
    np.testing.assert_array_equal(plan.action, [[0, 0]])
    assert plan.safe.all()
    plan = steer(CONFIG, world(), states((0.47, 0.0)), mean, policy, None, KEY)
    assert plan.action[0, 0] < -0.9 and plan.worst_cost[0] == 1 and not plan.safe.any()


def test_values_reach_beyond_the_horizon():
    """Of directions that pay the same, the one with the highest terminal value is taken."""
    config = replace(CONFIG, value_weight=1.0)
    mean = planner.initial_mean(config, ACTIONS, 1)
    north = lambda obs, key: 10 * obs[:, 1]
    plan = steer(config, world(), states((0.25, 0.0)), mean, policy, north, KEY)
    np.testing.assert_allclose(plan.action, [[0, 1]], atol=1e-6)
    assert plan.value[0] == pytest.approx(10 * 0.6, abs=1e-4)


def test_a_model_without_goals_cannot_steer():
    mean = planner.initial_mean(CONFIG, ACTIONS, 1)
    with pytest.raises(ValueError, match="needs a model with goals, and BlackBox has none; use ce"):
        steer(CONFIG, world(model=BlackBox), states((0.0, 0.0)), mean, policy, None, KEY)


def test_the_goal_is_shown_elsewhere_and_nothing_else_changes():
    model = goal_model(GoalConfig(robot="doggo"), "ego")
    states = model.restore(KEY, model.initial_records(KEY, 3))
    plain = jax.vmap(model.observe)(states)
    shown = jax.vmap(lambda s: model.observe_toward(s, s.heading + jnp.pi / 2))(states)
    goal = slice(model.feature_size, model.feature_size + 2)
    np.testing.assert_allclose(shown[:, goal], [[0, SHOWN_DISTANCE]] * 3, atol=1e-5)
    np.testing.assert_array_equal(
        np.delete(shown, np.r_[goal], 1), np.delete(plain, np.r_[goal], 1)
    )


@pytest.mark.slow
def test_a_quadruped_is_steered_by_default(call, monkeypatch):
    monkeypatch.setattr(benchmark_planner, "fastest", lambda plan: plan() and 0.5)
    for known in (True, False):
        for name in ("DoggoGoal", "DoggoGoal1", "AntGoal2"):
            assert default_planner(find_task(name), known).kind == "steer"
        assert default_planner(find_task("PointGoal"), known).kind == "cem"
    code, out, _ = call("benchmark", "planner", "--task", "DoggoGoal", "--num-envs", "1", "--json")
    (row,) = json.loads(out)
    assert code == 0 and row["plans_per_second"] == 2 and row["planner"]["directions"] == 16
    assert row["task"] == "DoggoGoal" and "ratio" not in row
