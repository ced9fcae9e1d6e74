"""Adapters, on environments scripted so that every number of every transition is known."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

import surefoot
from scripted import (
    F64,
    LENGTHS,
    MODES,
    Passing,
    Script,
    SixValues,
    assert_same,
    collected_rows,
    expected_rows,
    makers,
)
from surefoot.envs.gym.adapters import adapt


def test_script_is_what_the_docstring_says():
    first = expected_rows()[0]
    assert [row[1] for row in first[:6]] == [1, 2, 11, 12, 13, 21]
    assert [row[2] for row in first[:3]] == [0.001, 0.012, pytest.approx(0.031)]
    assert [row[3] for row in first[:6]] == [False, True, False, False, False, False]
    assert [row[4] for row in first[:6]] == [False, False, False, False, True, False]
    assert list(first[1][5]) == [0, 0, 2] and list(first[1][6]) == [0, 1, 0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copy", [True, False])
def test_sync_vector_env(mode, copy):
    env = adapt(SyncVectorEnv(makers(), autoreset_mode=mode, copy=copy))
    assert_same(collected_rows(env), expected_rows())


@pytest.mark.parametrize("copy", [True, False])
def test_vector_env_that_cannot_be_taken_apart(copy):
    mode = AutoresetMode.SAME_STEP
    env = adapt(Passing(SyncVectorEnv(makers(), autoreset_mode=mode, copy=copy)))
    assert env.metadata["autoreset_mode"] is mode
    assert_same(collected_rows(env), expected_rows())


def test_async_vector_env():
    mode = AutoresetMode.SAME_STEP
    env = adapt(AsyncVectorEnv(makers(), autoreset_mode=mode, context="spawn"))
    assert_same(collected_rows(env), expected_rows())


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_other_autoreset_modes_are_refused(mode):
    with pytest.raises(ValueError, match=r"function that makes one environment.*SAME_STEP"):
        adapt(Passing(SyncVectorEnv(makers(), autoreset_mode=mode)))


@pytest.mark.parametrize("kind", [Script, SixValues])
def test_single_environments(kind):
    made = iter(makers(kind))
    env = adapt(lambda: next(made)(), num_envs=3)
    assert env.cost_names == ("cost",) and env.max_episode_steps is None
    assert_same(collected_rows(env), expected_rows())
    one = adapt(kind(2, LENGTHS[2]))
    one.reset()
    _, reward, _, _, info = one.step(np.array([[0.5]]))
    assert reward == [201.0] and info["cost"] == pytest.approx(np.array([[0.701]]))


def test_six_values_by_id():
    gym.register("SixValues-v0", lambda: SixValues(2, (3,)))
    try:
        env = adapt("SixValues-v0", cost=["cost_sum", "cost"])
    finally:
        del gym.registry["SixValues-v0"]
    env.reset()
    assert env.step(np.array([[0.5]]))[-1]["cost"] == pytest.approx(np.array([[0.701, 0.701]]))


class OldSafetyVector(VectorEnv):
    """safety-gymnasium's vector step: six values, no mode in metadata, final_observation."""

    def __init__(self):
        self.envs = [make() for make in makers(SixValues)]
        self.num_envs = len(self.envs)
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space

    def reset(self, *, seed=None, options=None):
        return np.stack([env.reset()[0] for env in self.envs]), {}

    def step(self, actions):
        steps = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        obs, reward, cost, terminated, truncated, _ = map(np.array, zip(*steps, strict=True))
        final = np.full(self.num_envs, None)
        for i in np.flatnonzero(terminated | truncated):
            final[i] = obs[i].copy()
            obs[i] = self.envs[i].reset()[0]
        info = {"final_observation": final} if (terminated | truncated).any() else {}
        return obs, reward, cost, terminated, truncated, info


def test_six_value_vector_env():
    assert_same(collected_rows(adapt(OldSafetyVector())), expected_rows())


class Rich(gym.Env):
    """Dict observations of a 2 x 2 picture and a mode, actions 3, 4 or 5."""

    def __init__(self):
        self.observation_space = Dict(
            {"mode": Discrete(3, start=7), "picture": Box(0, 255, (2, 2), np.uint8)}
        )
        self.action_space = Discrete(3, start=3)
        self.taken: list[int] = []

    def _obs(self):
        mode = self.taken[-1] + 4 if self.taken else 7
        return {"mode": mode, "picture": np.array([[1, 2], [3, 4]], np.uint8)}

    def reset(self, *, seed=None, options=None):
        self.taken = []
        return self._obs(), {}

    def step(self, action):
        assert action in self.action_space
        self.taken.append(int(action))
        return self._obs(), 0.0, len(self.taken) == 2, False, {"cost": float(action)}


@pytest.mark.parametrize("vector", [False, True])
def test_dict_observations_and_discrete_actions(vector):
    mode = AutoresetMode.SAME_STEP
    source = Passing(SyncVectorEnv([Rich, Rich], autoreset_mode=mode)) if vector else Rich
    env = adapt(source, num_envs=2)
    assert env.single_action_space == Discrete(3)
    assert env.single_observation_space.shape == (7,)
    obs, _ = env.reset()
    np.testing.assert_array_equal(obs, [[1, 0, 0, 1, 2, 3, 4]] * 2)
    obs, *_, info = env.step(np.array([0, 2]))
    assert info["cost"].tolist() == [[3], [5]]
    np.testing.assert_array_equal(obs, [[1, 0, 0, 1, 2, 3, 4], [0, 0, 1, 1, 2, 3, 4]])
    obs, *_, info = env.step(np.array([1, 1]))
    np.testing.assert_array_equal(info["final_obs"], [[0, 1, 0, 1, 2, 3, 4]] * 2)
    np.testing.assert_array_equal(obs, [[1, 0, 0, 1, 2, 3, 4]] * 2)
    with pytest.raises(ValueError, match="action 3 of environment 1"):
        env.step(np.array([0, 3]))


SEVERAL = [
    (MultiDiscrete([2, 3]), [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]),
    (MultiDiscrete([[2], [2]], start=[[5], [-1]]), [[5, -1], [5, 0], [6, -1], [6, 0]]),
    (MultiBinary(2), [[0, 0], [0, 1], [1, 0], [1, 1]]),
    (Discrete(3, start=3), [3, 4, 5]),
]


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(("space", "expected"), SEVERAL, ids=lambda x: str(x)[:20])
def test_several_choices_are_one(space, expected, vector):
    """The environment and its cost function take the original action."""
    taken = []

    class Several(Script):
        def __init__(self):
            super().__init__(0, (99,))
            self.action_space = space

        def step(self, action):
            assert action in space
            taken.append(np.ravel(action))
            return super().step(np.zeros(1))

    mode = AutoresetMode.SAME_STEP
    n = len(expected)
    source = Passing(SyncVectorEnv([Several] * n, autoreset_mode=mode)) if vector else Several
    seen = []
    cost = lambda obs, action, next_obs: seen.append(action) or np.zeros(n)
    env = adapt(source, cost=cost, num_envs=n)
    assert env.single_action_space == Discrete(n)
    env.reset()
    env.step(np.arange(n))
    np.testing.assert_array_equal(seen[0], expected)
    np.testing.assert_array_equal(np.squeeze(taken), expected)


def test_actions_are_given_back_their_shape():
    class Shaped(Script):
        def __init__(self):
            super().__init__(0, (9,))
            self.action_space = Box(np.array([[-1, -2], [-3, -4]]), np.full((2, 2), 5), dtype=F64)

        def step(self, action):
            assert action.shape == (2, 2)
            *rest, _ = super().step(action[0])
            cost = float(action[1, 0])
            action[:] = np.nan  # an environment may do so with what it is given
            return *rest, {"cost": cost}

    env = adapt(Shaped, num_envs=2)
    np.testing.assert_array_equal(env.single_action_space.low, [-1, -2, -3, -4])
    assert env.action_space.shape == (2, 4)
    env.reset()
    actions = np.arange(8.0).reshape(2, 4)
    assert env.step(actions)[-1]["cost"].tolist() == [[2], [6]]
    np.testing.assert_array_equal(actions, np.arange(8.0).reshape(2, 4))
    function = adapt(Shaped, num_envs=2, cost=lambda obs, action, next_obs: action[:, 2])
    function.reset()
    assert function.step(actions)[-1]["cost"].tolist() == [[2], [6]]
    with pytest.raises(ValueError, match=r"shape \(2, 2\), not \(2, 4\)"):
        env.step(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="of environment 1 is not in"):
        env.step(np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]]))


def fast(obs, action, next_obs):
    """Pendulum's speed is its third observation."""
    return (np.abs(next_obs[:, 2]) > 1.0).astype(float)


def test_pendulum_by_id_against_a_plain_loop():
    env = adapt("Pendulum-v1", num_envs=2, cost=fast, seed=5)
    assert env.max_episode_steps == 200
    rng = np.random.default_rng(0)
    actions = rng.uniform(-2, 2, (203, 2, 1)).astype(np.float32)
    obs = [env.reset()[0]]
    rewards, costs = [], []
    for action in actions:
        step = env.step(action)
        obs.append(step[0])
        rewards.append(step[1])
        costs.append(step[-1]["cost"])
        assert step[3].all() == (len(rewards) == 200)
    for i in range(2):
        plain = gym.make("Pendulum-v1")
        first, _ = plain.reset(seed=5 + i)
        np.testing.assert_array_equal(obs[0][i], first)
        for s, action in enumerate(actions):
            next_obs, reward, _, truncated, _ = plain.step(action[i])
            assert rewards[s][i] == reward
            assert costs[s][i, 0] == (abs(next_obs[2]) > 1)
            following = plain.reset()[0] if truncated else next_obs  # unseeded
            np.testing.assert_array_equal(obs[s + 1][i], following)
    assert 0 < np.sum(costs) < 2 * 203


def test_seeds():
    def first_obs(num_envs, seed, later=None):
        env = adapt("Pendulum-v1", num_envs=num_envs, cost=fast, seed=seed)
        obs = env.reset()[0]
        return (obs, env.reset(seed=later)[0])

    many, again = first_obs(3, 10)
    for i in range(3):
        np.testing.assert_array_equal(first_obs(1, 10 + i)[0][0], many[i])
    assert (many != again).any(axis=1).all()  # a second reset does not seed again
    np.testing.assert_array_equal(first_obs(3, [11, 10, 12])[0], many[[1, 0, 2]])
    np.testing.assert_array_equal(first_obs(3, None, later=10)[1], many)


def test_time_limits():
    assert adapt(TimeLimit(Script(0, (9,)), 4)).max_episode_steps == 4
    vector = gym.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="sync")
    assert adapt(vector, cost=fast).max_episode_steps == 200
    assert adapt(Passing(OldSafetyVector())).max_episode_steps is None


class Conforming(VectorEnv):
    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}
    num_envs, cost_names, max_episode_steps = 2, ("heat", "wear"), 50
    single_observation_space = Box(-1, 1, (1,), np.float32)
    single_action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions):
        ended = np.array([False, True])
        info = {"cost": np.array([[1.0, 2], [3, 4]])}
        info |= {"final_obs": np.ones((2, 1)), "_final_obs": ended}
        return np.zeros((2, 1)), np.zeros(2), ended, ~ended & False, info


def test_conforming_environments_pass_unchanged():
    env = Conforming()
    assert adapt(env) is env
    adapted = adapt(Script(0, (3,)))
    assert adapt(adapted) is adapted
    env.single_action_space = Discrete(3, start=1)
    assert adapt(env).single_action_space == Discrete(3)
    env = Conforming()
    wrapped = adapt(Passing(env))  # the wrapper hides the names, `unwrapped` has them
    assert wrapped.cost_names == ("heat", "wear") and wrapped.max_episode_steps == 50
    wrapped.reset()
    info = wrapped.step(np.zeros((2, 1)))[-1]
    np.testing.assert_array_equal(info["cost"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(info["final_obs"], [[0], [1]])
    other = adapt(env, cost=lambda o, a, n: n[:, 0])
    other.reset()
    assert other.step(np.zeros((2, 1)))[-1]["cost"].tolist() == [[0], [1]]


def test_a_wrapped_task_keeps_state_and_outcome():
    task = surefoot.make("PointGoal", num_envs=2, seed=0, max_episode_steps=2)
    env = adapt(Passing(task))
    assert env is not task and env.cost_names == ("hazards",)
    env.reset()
    for _ in range(2):
        *_, info = env.step(np.ones((2, 2)))
        assert info["cost"].shape == (2, 1)
    # The episodes ended: the outcome is where they ended, the state where the next ones begin.
    assert env.outcome is task.outcome
    assert (env.state().position != env.outcome.position).any()
    assert not hasattr(adapt(Passing(OldSafetyVector())), "outcome")
    assert not hasattr(adapt(Script(0, (3,))), "state")


def test_a_class_makes_as_many_copies_as_needed():
    env = adapt(Rich, num_envs=3)
    assert env.num_envs == 3 and len({id(one) for one in env.envs}) == 3
