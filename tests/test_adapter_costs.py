"""Where adapters take costs from: keys of info, several of them, or a function."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from scripted import MODES, STEPS, Passing, Script, actions_for, expected_rows, makers
from surefoot.envs.gym.adapters import EnvironmentFault, adapt


@pytest.mark.parametrize(
    "source",
    [
        SyncVectorEnv(makers()),
        Passing(SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.SAME_STEP)),
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
    with pytest.raises(EnvironmentFault, match=r"info\['cost'\] has shape \(2,\), not \(\)"):
        env.step(np.zeros((1, 1)))


def test_int_cost_first_does_not_truncate_the_others():
    class Mixed(Script):
        def step(self, action):
            *rest, _ = super().step(action)
            return *rest, {"cost": 0 if self.name == 0 else 0.5}

    env = adapt(SyncVectorEnv(makers(Mixed)))
    env.reset()
    assert env.step(actions_for(0))[-1]["cost"].tolist() == [[0.0], [0.5], [0.5]]


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
        assert env.step(actions_for(s))[-1]["cost"].tolist() == [[1], [1], [1]]
        np.testing.assert_array_equal(seen[s][1], actions_for(s))
    for s, (obs, _, next_obs) in enumerate(seen):
        np.testing.assert_array_equal(obs, [row[s][0] for row in expected_rows()])
        np.testing.assert_array_equal(next_obs, [row[s][5] for row in expected_rows()])


def test_cost_function_of_wrong_shape():
    env = adapt(Script(0, (3,)), cost=lambda obs, action, next_obs: next_obs[:, :2])
    env.reset()
    with pytest.raises(ValueError, match=r"cost_names.* shape \(1, 2\), not \(1,\)"):
        env.step(np.zeros((1, 1)))
    both = adapt(Script(0, (3,)), cost=lambda o, a, n: n[:, :2], cost_names=("a", "b"))
    both.reset()
    np.testing.assert_array_equal(both.step(np.zeros((1, 1)))[-1]["cost"], [[0, 0]])
