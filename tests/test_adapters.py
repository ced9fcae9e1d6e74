"""Adapters, on environments scripted so that every number of every transition is known."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers import TimeLimit

from surefoot.envs.adapters import EnvironmentFault, adapt

F64 = np.float64


class Script(gym.Env):
    """Environment `name`: its e-th episode (from 0) has lengths[e % len] steps.

    obs = (name, episode, t); reward = 100 name + 10 episode + t; cost = reward / 1000 + action;
    odd episodes are truncated, even ones terminated. The info of a reset has a cost too, 99: a
    decoy that no step may ever show.
    """

    def __init__(self, name: int, lengths: tuple[int, ...]):
        self.name, self.lengths, self.episode, self.t = name, lengths, -1, 0
        self.observation_space = Box(-np.inf, np.inf, (3,), F64)
        self.action_space = Box(-1.0, 1.0, (1,), F64)

    def _obs(self):
        return np.array([self.name, self.episode, self.t], F64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {"cost": 99.0, "second": 99.0}

    def step(self, action):
        self.t += 1
        reward = 100.0 * self.name + 10.0 * self.episode + self.t
        end = self.t == self.lengths[self.episode % len(self.lengths)]
        odd = self.episode % 2 == 1
        cost = reward / 1000 + float(action[0])
        info = {"cost": cost, "second": -cost}
        return self._obs(), reward, end and not odd, end and odd, info


class SixValues(Script):
    """The same with the step of safety-gymnasium."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        cost = info.pop("cost")
        return obs, reward, cost, terminated, truncated, {"cost_sum": cost}


LENGTHS = ((2, 3), (1,), (4, 1, 2))
STEPS = 12


def makers(kind: type[Script] = Script):
    return [lambda i=i, n=n: kind(i, n) for i, n in enumerate(LENGTHS)]


def actions_for(step: int) -> np.ndarray:
    return np.array([[0.01 * step], [0.02 * step], [-0.03 * step]])


def expected_rows() -> list[list[tuple]]:
    """(obs, reward, cost, terminated, truncated, next_obs, following obs) by plain loops."""
    rows = []
    for i, make in enumerate(makers()):
        env = make()
        obs, _ = env.reset()
        rows.append([])
        for s in range(STEPS):
            next_obs, reward, terminated, truncated, info = env.step(actions_for(s)[i])
            following = env.reset()[0] if terminated or truncated else next_obs
            rows[-1].append((obs, reward, info["cost"], terminated, truncated, next_obs, following))
            obs = following
    return rows


def collected_rows(env: VectorEnv) -> list[list[tuple]]:
    rows = [[] for _ in range(env.num_envs)]
    obs, info = env.reset()
    assert info == {}
    for s in range(STEPS):
        following, reward, terminated, truncated, info = env.step(actions_for(s))
        assert reward.dtype == info["cost"].dtype == F64
        assert terminated.dtype == truncated.dtype == bool
        ended = terminated | truncated
        assert ("final_obs" in info) == ended.any()
        next_obs = following.copy()
        if ended.any():
            assert info["final_obs"].shape == following.shape
            np.testing.assert_array_equal(info["_final_obs"], ended)
            next_obs[ended] = info["final_obs"][ended]
        for i, row in enumerate(rows):
            ends = bool(terminated[i]), bool(truncated[i])
            values = reward[i], info["cost"][i], *ends
            row.append((obs[i], *values, next_obs[i], following[i]))
        obs = following
    env.close()
    return rows


def assert_same(rows, expected):
    assert len(rows) == len(expected)
    for row, right in zip(rows, expected, strict=True):
        for a, b in zip(row, right, strict=True):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(x, y)


def test_script_is_what_the_docstring_says():
    first = expected_rows()[0]
    assert [row[1] for row in first[:6]] == [1, 2, 11, 12, 13, 21]
    assert [row[2] for row in first[:3]] == [0.001, 0.012, pytest.approx(0.031)]
    assert [row[3] for row in first[:6]] == [False, True, False, False, False, False]
    assert [row[4] for row in first[:6]] == [False, False, False, False, True, False]
    assert list(first[1][5]) == [0, 0, 2] and list(first[1][6]) == [0, 1, 0]


class Passing(VectorWrapper):
    """Hides that the environment below is a SyncVectorEnv."""


MODES = list(AutoresetMode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copy", [True, False])
def test_sync_vector_env(mode, copy):
    env = adapt(SyncVectorEnv(makers(), autoreset_mode=mode, copy=copy))
    assert_same(collected_rows(env), expected_rows())


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("copy", [True, False])
def test_vector_env_that_cannot_be_taken_apart(mode, copy):
    env = adapt(Passing(SyncVectorEnv(makers(), autoreset_mode=mode, copy=copy)))
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert_same(collected_rows(env), expected_rows())


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_async_vector_env(mode):
    env = adapt(AsyncVectorEnv(makers(), autoreset_mode=mode, context="spawn"))
    assert_same(collected_rows(env), expected_rows())


def test_next_step_that_cannot_be_helped():
    with pytest.raises(ValueError, match="SAME_STEP"):
        adapt(Passing(SyncVectorEnv(makers())))
    env = AsyncVectorEnv(makers()[:1], shared_memory=False, context="spawn")
    with pytest.raises(ValueError, match="SAME_STEP"):
        adapt(env)
    env.close()


def test_a_mask_that_resets_all_is_noticed():
    class Deaf(VectorWrapper):
        def reset(self, *, seed=None, options=None):
            return self.env.reset(seed=seed)

    env = adapt(Deaf(SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.DISABLED)))
    env.reset()
    with pytest.raises(EnvironmentFault, match="environment 0, step 1 of episode 1: reset_mask"):
        env.step(actions_for(0))  # environment 1 ends here, 0 does not


@pytest.mark.parametrize("kind", [Script, SixValues])
def test_single_environments(kind):
    made = iter(makers(kind))
    env = adapt(lambda: next(made)(), num_envs=3)
    assert env.cost_names == ("cost",) and env.max_episode_steps is None
    assert_same(collected_rows(env), expected_rows())
    one = adapt(kind(2, LENGTHS[2]))
    one.reset()
    _, reward, _, _, info = one.step(np.array([[0.5]]))
    assert reward == [201.0] and info["cost"] == pytest.approx([0.701])


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


@pytest.mark.parametrize(
    "source",
    [
        SyncVectorEnv(makers()),
        Passing(SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.SAME_STEP)),
        Passing(SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.DISABLED)),
    ],
)
def test_several_costs(source):
    env = adapt(source, cost=["second", "cost"])
    assert env.cost_names == ("second", "cost")
    env.reset()
    for s in range(STEPS):
        info = env.step(actions_for(s))[-1]
        right = np.array([row[s][2] for row in expected_rows()])
        np.testing.assert_array_equal(info["cost"], np.stack([-right, right], axis=1))


def test_one_key_with_several_costs():
    class Pair(Script):
        def step(self, action):
            *rest, _ = super().step(action)
            return *rest, {"cost": np.array([1.5, self.name])}

    env = adapt(lambda: Pair(4, (3,)), cost_names=("heat", "wear"), num_envs=2)
    env.reset()
    np.testing.assert_array_equal(env.step(np.zeros((2, 1)))[-1]["cost"], [[1.5, 4], [1.5, 4]])
    env = adapt(Pair(4, (3,)))
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"cost .* has shape \(2,\), not \(\)"):
        env.step(np.zeros((1, 1)))


def test_int_cost_first_does_not_truncate_the_others():
    class Mixed(Script):
        def step(self, action):
            *rest, _ = super().step(action)
            return *rest, {"cost": 0 if self.name == 0 else 0.5}

    env = adapt(SyncVectorEnv(makers(Mixed)))
    env.reset()
    assert list(env.step(actions_for(0))[-1]["cost"]) == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("mode", MODES)
def test_cost_function_sees_the_true_next_observation(mode):
    seen = []

    def cost(obs, action, next_obs):
        seen.append((obs.copy(), action.copy(), next_obs.copy()))
        return next_obs[:, 2] - obs[:, 2]  # t advances by one in every step, ends included

    env = adapt(SyncVectorEnv(makers(), autoreset_mode=mode), cost=cost)
    assert env.cost_names == ("cost",)
    env.reset()
    for s in range(STEPS):
        assert list(env.step(actions_for(s))[-1]["cost"]) == [1, 1, 1]
        np.testing.assert_array_equal(seen[s][1], actions_for(s))
    for s, (obs, _, next_obs) in enumerate(seen):
        np.testing.assert_array_equal(obs, [row[s][0] for row in expected_rows()])
        np.testing.assert_array_equal(next_obs, [row[s][5] for row in expected_rows()])


def test_cost_function_of_wrong_shape():
    env = adapt(Script(0, (3,)), cost=lambda obs, action, next_obs: next_obs[:, :2])
    env.reset()
    with pytest.raises(ValueError, match=r"shape \(1, 2\), not \(1,\).*cost_names"):
        env.step(np.zeros((1, 1)))
    both = adapt(Script(0, (3,)), cost=lambda o, a, n: n[:, :2], cost_names=("a", "b"))
    both.reset()
    np.testing.assert_array_equal(both.step(np.zeros((1, 1)))[-1]["cost"], [[0, 0]])


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
    assert list(info["cost"]) == [3, 5]
    np.testing.assert_array_equal(obs, [[1, 0, 0, 1, 2, 3, 4], [0, 0, 1, 1, 2, 3, 4]])
    obs, *_, info = env.step(np.array([1, 1]))
    np.testing.assert_array_equal(info["final_obs"], [[0, 1, 0, 1, 2, 3, 4]] * 2)
    np.testing.assert_array_equal(obs, [[1, 0, 0, 1, 2, 3, 4]] * 2)
    with pytest.raises(ValueError, match="action 3 of environment 1"):
        env.step(np.array([0, 3]))


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
    assert list(env.step(actions)[-1]["cost"]) == [2, 6]
    np.testing.assert_array_equal(actions, np.arange(8.0).reshape(2, 4))
    function = adapt(Shaped, num_envs=2, cost=lambda obs, action, next_obs: action[:, 2])
    function.reset()
    assert list(function.step(actions)[-1]["cost"]) == [2, 6]
    with pytest.raises(ValueError, match=r"shape \(2, 2\), not \(2, 4\)"):
        env.step(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="of environment 1 is not in"):
        env.step(np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]]))


class Broken(Script):
    """Faulty in its second step; `how` changes what the step gives."""

    how: ClassVar[Any] = None

    def step(self, action):
        values = super().step(action)
        return type(self).how(values) if self.t == 2 and self.name == 1 else values


def break_with(how, vector=False):
    kind = type("Broken", (Broken,), {"how": staticmethod(how)})
    fns = [lambda: kind(0, (5,)), lambda: kind(1, (5,))]
    source = SyncVectorEnv(fns, autoreset_mode=AutoresetMode.SAME_STEP)
    env = adapt(Passing(source) if vector else source)
    env.reset()
    env.step(np.zeros((2, 1)))
    return env


WHERE = "environment 1, step 2 of episode 1: "


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda v: (v[0] * [1, np.nan, 1], *v[1:]), r"observation\[1\] is nan"),
        (lambda v: (v[0], np.inf, *v[2:]), "reward is inf"),
        (lambda v: (*v[:4], {"cost": np.nan}), "cost 'cost' is nan"),
        (lambda v: (*v[:4], {"speed": 1.0, "heat": 2.0}), r"info has no 'cost', but \['.*'speed'"),
    ],
)
def test_faults_found_everywhere(how, message, vector):
    env = break_with(how, vector)
    with pytest.raises(EnvironmentFault, match=WHERE + message):
        env.step(np.zeros((2, 1)))
    with pytest.raises(RuntimeError, match="reset must be called"):
        env.step(np.zeros((2, 1)))


def raising(values):
    raise ZeroDivisionError("the motor stalled")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda v: (v[0][:2], *v[1:]), r"observation has shape \(2,\), not \(3,\)"),
        (lambda v: ("far", *v[1:]), "observation 'far' does not fit Box"),
        (lambda v: (v[0], np.ones(2), *v[2:]), r"reward .* has shape \(2,\), not \(\)"),
        (lambda v: (v[0], *v[2:]), "step gave 4 values, not 5"),
        (lambda v: None, "TypeError"),
        (lambda v: (*v[:4], None), "TypeError"),
        (raising, "ZeroDivisionError: the motor stalled"),
    ],
)
def test_faults_of_single_environments(how, message):
    with pytest.raises(EnvironmentFault, match=WHERE + message) as caught:
        break_with(how).step(np.zeros((2, 1)))
    if how is raising:
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_faults_name_parts_and_resets():
    class Blind(Script):
        def __init__(self):
            super().__init__(0, (1,))
            self.observation_space = Dict(
                {"eye": Box(-9, 9, (2, 2), F64), "arm": Box(-9, 9, (1,), F64)}
            )

        def _obs(self):
            return {"eye": np.array([[0, 0], [np.nan if self.episode else 0, 0]]), "arm": [0.0]}

    env = adapt(Blind())
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"0, reset into episode 2: observation\['eye'\]\[1"):
        env.step(np.zeros((1, 1)))


def test_wrong_shape_of_a_vector_env():
    class Short(Passing):
        def step(self, actions):
            obs, reward, *rest = self.env.step(actions)
            return obs, reward[:2], *rest

    env = adapt(Short(SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.SAME_STEP)))
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"step 1: reward has shape \(2,\), not \(3,\)"):
        env.step(actions_for(0))


def test_unsupported_spaces_and_arguments():
    def with_spaces(**spaces):
        env = Script(0, (3,))
        for name, space in spaces.items():
            setattr(env, name, space)
        return env

    for space in (MultiDiscrete([2, 3]), Box(0, 9, (2,), np.int32)):
        with pytest.raises(ValueError, match=space.__class__.__name__ + ".* not supported"):
            adapt(with_spaces(action_space=space))
    with pytest.raises(ValueError, match=r"Sequence.* cannot be flattened"):
        adapt(with_spaces(observation_space=Sequence(Box(0, 1))))
    same = Script(0, (3,))
    for args, match in [
        ((same, {"num_envs": 2}), "num_envs=2"),
        ((SyncVectorEnv(makers()), {"num_envs": 2}), "num_envs=2.* has 3"),
        ((Script, {"num_envs": 0}), "num_envs=0"),
        ((lambda: same, {"num_envs": 2}), "same environment twice"),
        ((lambda: 3, {}), r"env\(\) gave 3"),
        ((7, {}), "env=7"),
        ((same, {"cost": []}), r"cost=\[\]"),
        ((same, {"cost": ["a", "b"], "cost_names": ["a"]}), "cost_names"),
        ((same, {"cost": ["a", "a"]}), "its own name"),
    ]:
        with pytest.raises(ValueError, match=match):
            adapt(args[0], **args[1])
    with pytest.raises(ValueError, match=r"seed=\[1, 2\] should be an int or a list of 1"):
        adapt(same, seed=[1, 2]).reset()


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
            assert costs[s][i] == (abs(next_obs[2]) > 1)
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
    assert list(other.step(np.zeros((2, 1)))[-1]["cost"]) == [0, 1]
