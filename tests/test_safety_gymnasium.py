"""`surefoot.safety_gymnasium`: the reference's interface, its numbers, and training loops on it."""

import copy
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import surefoot.safety_gymnasium as safety_gymnasium
from conftest import DATA
from surefoot.safety_gymnasium.options import family_config
from surefoot.safety_gymnasium.wrappers import (
    Gymnasium2SafetyGymnasium,
    SafeNormalizeCost,
    SafeNormalizeObservation,
    SafeNormalizeReward,
    SafePassiveEnvChecker,
    SafeRescaleAction,
    SafetyGymnasium2Gymnasium,
    SafeUnsqueeze,
    with_gymnasium_wrappers,
)

# Lengths of observations, from the reference.
SENSORS = {"Point": 12, "Car": 24, "Doggo": 56, "Racecar": 12, "Ant": 40}
LIDARS = {"Goal": (1, 3, 3), "Button": (2, 4, 4), "Push": (2, 4, 4), "Circle": (1, 1, 1)}
LIDARS["Run"] = (0,)


def make(name="SafetyPointGoal1-v0", seed=0, **kwargs):
    env = safety_gymnasium.make(name, **kwargs)
    env.reset(seed=seed)
    return env


def actions(env, steps, seed=0):
    space = getattr(env, "single_action_space", env.action_space)
    shape = (steps, *env.action_space.shape)
    return np.random.default_rng(seed).uniform(space.low, space.high, shape)


def test_all_ids_and_their_twins():
    ids = [f"Safety{r}{t}{n}-v0" for r in SENSORS for t, k in LIDARS.items() for n in range(len(k))]
    runners = ("HalfCheetah", "Hopper", "Swimmer", "Walker2d", "Ant", "Humanoid")
    ids += [f"Safety{name}Velocity-{v}" for v in ("v0", "v1") for name in runners]
    assert set(safety_gymnasium.registry) == set(ids) and len(ids) == 77
    assert all(name.replace("-", "Gymnasium-") in gymnasium.registry for name in ids)
    steps = {name: safety_gymnasium.spec(name).max_episode_steps for name in ids}
    assert steps["SafetyCarCircle2-v0"] == 500 and steps["SafetyAntButton0-v0"] == 1000


@pytest.mark.parametrize("robot", SENSORS)
def test_spaces(robot):
    for task in LIDARS if robot == "Point" else ("Button", "Run"):
        lidars = LIDARS[task]
        env = make(f"Safety{robot}{task}{len(lidars) - 1}-v0")
        obs, size = env.observation_space, SENSORS[robot]
        assert obs.shape == (size + 16 * lidars[-1],) and obs.dtype == np.float64
        assert (obs.low[:size] == -np.inf).all() and (obs.low[size:] == 0).all()
        assert (obs.high[:size] == np.inf).all() and (obs.high[size:] == 1).all()
        assert env.action_space.dtype == np.float64
        # The reference's bounds are rounded to single precision.
        high = np.float32((20, 0.785)) if robot == "Racecar" else np.ones(env.action_space.shape)
        assert (env.action_space.high == high).all() and (env.action_space.low == -high).all()
        assert env.step(env.action_space.sample())[0] in obs


@pytest.mark.parametrize(
    ("name", "steps", "tolerance"),
    [
        ("PointGoal2_1", 5, 1e-8),
        ("PointButton1_1", 5, 2e-2),  # gremlins touch the floor at first
        ("PointPush2_1", 5, 1e-8),
        ("AntCircle1_0", 8, 1e-9),
        ("HalfCheetahVelocity_0", 30, 1e-9),
    ],
)
def test_same_seed_and_actions_give_the_recorded_episode(name, steps, tolerance):
    recorded = np.load(DATA / f"{name}.npz")
    label = name[:-2] + ("-v1" if "Velocity" in name else "-v0")
    env = safety_gymnasium.make(f"Safety{label}")
    obs, info = env.reset(seed=int(recorded["seed"]))
    assert info == {} and np.abs(obs - recorded["obs"][0]).max() < 1e-12
    for t in range(steps):
        assert recorded["pre"][t] == t  # nothing was moved in the recording
        obs, reward, cost, terminated, truncated, _ = env.step(recorded["act"][t])
        assert np.abs(obs - recorded["obs"][t + 1]).max() < tolerance
        assert abs(reward - recorded["rew"][t]) < tolerance
        assert cost == recorded["cost"][t] and terminated == recorded["term"][t] and not truncated


def test_layouts_of_the_second_episode_follow_the_stream():
    layouts = np.load(DATA / "family_layouts.npz")
    env = safety_gymnasium.make("SafetyPointGoal2-v0")
    for episode, seed in enumerate((3, None)):
        env.reset(seed=seed)
        names = layouts["PointGoal2/names"].tolist()
        places = layouts["PointGoal2/xy"][3, episode]
        first = names.index("hazard0")
        hazards = np.stack(env.unwrapped.task.hazards.pos)
        assert np.array_equal(hazards[:, :2], places[first : first + 10])
        assert np.array_equal(
            env.unwrapped.task.goal.pos[:2], layouts["PointGoal2/goal"][3, episode]
        )


def test_the_first_seed_comes_from_numpys_global_stream():
    np.random.seed(7)  # noqa: NPY002
    seed = np.random.randint(2**32, dtype="int64")  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    env = safety_gymnasium.make("SafetyPointGoal1-v0")
    assert np.array_equal(env.reset()[0], env.reset(seed=int(seed))[0])


def test_step_returns_the_references_types_and_keys():
    env = make("SafetyPointGoal2-v0")
    _, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
    assert isinstance(reward, float) and type(cost) is float and type(terminated) is bool
    assert list(info) == ["cost_hazards", "cost_vases_contact", "cost_vases_velocity", "cost_sum"]
    assert all(type(value) is float for value in info.values()) and type(truncated) is bool
    assert list(make("SafetyPointGoal0-v0").step([0, 0])[5]) == ["cost_sum"]
    assert list(make("SafetyCarRun0-v0").step([0, 0])[5]) == ["cost_out_of_boundary", "cost_sum"]
    info = make("SafetyHopperVelocity-v1").step(np.zeros(3))[5]
    assert list(info) == ["x_position", "x_velocity"]
    info = make("SafetyAntVelocity-v0").step(np.ones(8))[5]
    assert info["reward_ctrl"] == -4 and info["forward_reward"] == info["x_velocity"]


def test_reaching_the_goal_and_entering_a_hazard():
    places = {"agent.locations": [(0, 0)], "hazards.locations": [(0, 1.0)]}
    env = make(config={**places, "hazards.num": 1, "vases.num": 0, "agent.keepout": 0.1})
    env.unwrapped.core.goal[0] = 0.25, 0.0
    *_, info = env.step([0.0, 0.0])
    assert info["goal_met"] is True and info["cost_sum"] == 0.0
    env.unwrapped.core.hazards[0, 0] = 0.05, 0.0
    _, _, cost, _, _, info = env.step([0.0, 0.0])
    assert cost == info["cost_hazards"] == info["cost_sum"] == 1.0 and "goal_met" not in info
    assert env.unwrapped.cost == {"cost_hazards": 1.0, "cost_sum": 1.0}


def test_buttons_cost_nothing_and_have_no_key_while_the_timer_runs():
    env = make("SafetyPointButton1-v0")
    assert "cost_buttons" in env.step([0, 0])[5] and env.task.buttons.timer == 0
    env.unwrapped.core.timer[0] = 2
    seen = ["cost_buttons" in env.step([0, 0])[5] for _ in range(4)]
    assert seen == [False, False, True, True]


def test_time_limits_of_task_and_wrapper():
    env = make(max_episode_steps=3)
    assert env.spec.max_episode_steps == 3
    assert [env.step([0, 0])[4] for _ in range(3)] == [False, False, True]
    env = make(config={"num_steps": 2})
    assert [env.step([0, 0])[4] for _ in range(2)] == [False, True]
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step([0, 0])
    env = make(max_episode_steps=2, autoreset=True)
    first = env.step([0, 0])[0]
    obs, *_, truncated, info = env.step([0, 0])
    assert truncated and info["final_info"]["cost_sum"] == 0.0
    assert np.abs(info["final_observation"] - first).max() < 0.1 < np.abs(obs - first).max()


def test_task_attributes():
    env = make("SafetyCarPush2-v0", seed=2)
    task = env.task  # through the wrappers, as with gymnasium 0.28
    assert task is env.unwrapped.task and task.num_steps == 1000
    assert task.agent.pos.shape == task.agent.vel.shape == (3,)
    assert np.allclose(task.agent.mat @ task.agent.mat.T, np.eye(3))
    assert len(task.hazards.pos) == task.hazards.num == 4 and task.hazards.size == 0.3
    assert task.push_box.size == 0.125 and task.push_box.pos[2] == 0.125
    assert task.pillars.is_constrained and not task.goal.is_constrained
    assert task.placements_conf.extents == [-2, -2, 2, 2] and task.lidar_conf.max_dist == 3
    assert task.mechanism_conf.continue_goal and task.cost_conf.constrain_indicator
    assert task.dist_goal() == task.agent.dist_xy(task.goal.pos)
    assert task.dist_box_goal() == pytest.approx(env.unwrapped.core.previous[0, 1])
    parts = task.split(task.obs())
    assert list(parts) == list(task.obs_info.obs_space_dict) and parts["ballquat_rear"].shape == (
        3,
        3,
    )
    assert np.allclose(parts["hazards_lidar"], task._obs_lidar(task.hazards.pos, 3), atol=1e-12)
    assert np.array_equal(parts["gyro"], task.agent.get_sensor("gyro"))
    assert task.agent.get_sensor("ballquat_rear").shape == (4,) and task.agent.is_alive()
    with pytest.raises(AttributeError, match=r"hazards\.num cannot be set; use .*config"):
        task.hazards.num = 3
    with pytest.raises(AttributeError, match=r"task.data.*no MuJoCo model"):
        _ = task.data
    assert not hasattr(task, "gremlins")


def test_config_changes_the_task():
    config = {"agent_name": "Car", "placements_conf.extents": [-2.5, -2.5, 2.5, 2.5]}
    config |= {
        "hazards.num": 3,
        "hazards.size": 0.25,
        "lidar_conf.max_dist": 5.0,
        "floor_conf.type": "mud",
    }
    config |= {"vases.is_constrained": True, "hazards.is_constrained": False}
    options = family_config("SafetyPointGoal1-v0", config)
    assert (options.robot, options.extent, options.hazards) == ("car", 2.5, 3)
    assert options.constrained == ("vases",) and options.lidar_range == 5.0
    env = make(config={"observation_flatten": False})
    obs = env.step([0, 0])[0]
    assert obs in env.observation_space and obs["goal_lidar"].shape == (16,)
    env = safety_gymnasium.make(
        "SafetyPointGoal1-v0", config={"mechanism_conf.randomize_layout": False}
    )
    assert np.array_equal(env.reset()[0], env.reset()[0])
    with pytest.raises(ValueError, match="seed=4 must be None"):
        env.reset(seed=4)


@pytest.mark.parametrize("name", ["SafetyPointButton2-v0", "SafetySwimmerVelocity-v1"])
def test_vector_environments_equal_single_ones(name):
    native = safety_gymnasium.vector.make(name, num_envs=3, max_episode_steps=7)
    wrapped = safety_gymnasium.vector.make(
        name, num_envs=3, max_episode_steps=7, wrappers=SafePassiveEnvChecker
    )
    assert native.single_observation_space == wrapped.single_observation_space
    assert native.action_space == wrapped.action_space and type(native) is not type(wrapped)
    results = [env.reset(seed=[4, 9, 2]) for env in (native, wrapped)]
    assert np.array_equal(results[0][0], results[1][0])
    for action in actions(native, 16):
        a, b = native.step(action), wrapped.step(action)
        for ours, theirs in zip(a[:5], b[:5], strict=True):
            assert ours.dtype == theirs.dtype and np.allclose(ours, theirs, atol=1e-12)
        assert set(a[5]) == set(b[5])
        for key in a[5]:
            if key == "final_observation":
                assert np.allclose(np.stack(a[5][key]), np.stack(b[5][key]), atol=1e-12)
            elif key == "final_info":
                assert [list(x) for x in a[5][key]] == [list(x) for x in b[5][key]]
            else:
                assert a[5][key].dtype == b[5][key].dtype, key
                assert np.allclose(a[5][key], b[5][key], atol=1e-9), key


def test_vector_environments_with_async_calls_and_pictures():
    env = safety_gymnasium.make_vec(
        "SafetyPointCircle1-v0", 3, render_mode="rgb_array", width=64, height=64
    )
    env.reset(seed=1)
    env.step_async(np.zeros((3, 2)))
    assert env.step_wait()[2].shape == (3,) and env.render().shape == (2 * 74, 2 * 74, 3)
    env = SafeNormalizeObservation(env)
    obs, _ = env.reset(seed=1)
    assert obs.shape == (3, 28) and env.num_envs == 3 and np.abs(obs).max() < 2
    functions = [lambda: safety_gymnasium.make("SafetyPointGoal1-v0")] * 2
    env = safety_gymnasium.vector.SafetyAsyncVectorEnv(functions)
    env.reset(seed=0)
    assert env.call("task")[1].num_steps == 1000 and len(env.get_attr("action_space")) == 2


def test_wrappers():
    env = make("SafetyRacecarGoal1-v0")
    scaled = SafeRescaleAction(env, -1, 1)
    assert np.allclose(scaled.action(np.array([0.5, -1])), (10, -0.785))
    env = SafeUnsqueeze(SafeNormalizeCost(SafeNormalizeReward(make())))
    assert env.reset(seed=1)[0].shape == (1, 60)
    obs, reward, cost, terminated, _, _ = env.step([1.0, 0.0])
    assert obs.shape == (1, 60) and reward.shape == cost.shape == terminated.shape == (1,)
    gym = SafetyGymnasium2Gymnasium(make())
    assert gym.step([0, 0])[4]["cost"] == 0.0
    assert len(Gymnasium2SafetyGymnasium(gym).step([0, 0])) == 6
    env = Gymnasium2SafetyGymnasium(gymnasium.make("Pendulum-v1"))
    env.reset()
    with pytest.raises(ValueError, match="it must have 'cost'"):
        env.step([0.0])
    env = with_gymnasium_wrappers(
        make(), lambda e: gymnasium.wrappers.TransformReward(e, lambda r: r + 100)
    )
    env.reset(seed=0)
    assert env.step([0, 0])[1] > 99
    broken = SafePassiveEnvChecker(gym)
    broken.reset()
    with pytest.raises(ValueError, match=r"it must be \(obs, reward, cost"):
        broken.step([0, 0])


def test_normalising_wrappers_give_the_running_moments():
    raw, env = make(), SafeNormalizeReward(make(), gamma=0.9)
    total, sums, scaled = 0.0, [], []
    for action in actions(raw, 5):
        reward = raw.step(action)[1]
        total = 0.9 * total + reward
        sums.append(total)
        scaled.append((reward, env.step(action)[1]))
    mean = np.sum(sums) / 5.0001
    variance = (np.square(np.array(sums) - np.mean(sums)).sum() + 1e-4) / 5.0001
    variance += np.mean(sums) ** 2 * 1e-4 * 5 / 5.0001**2
    assert env.return_rms.mean == pytest.approx(mean) and env.return_rms.var == pytest.approx(
        variance
    )
    reward, normalised = scaled[-1]
    assert normalised == pytest.approx(reward / np.sqrt(variance + 1e-8))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_continue_exactly(copied):
    env = make("SafetyPointButton2-v0", autoreset=True)
    for action in actions(env, 20):
        env.step(action)
    twin = copied(env)
    for action in actions(env, 20, seed=1):
        a, b = env.step(action), twin.step(action)
        assert np.array_equal(a[0], b[0]) and a[1:] == b[1:]


def test_pictures():
    env = make("SafetyPointPush1-v0", render_mode="rgb_array", width=120, height=90)
    picture = env.render()
    assert picture.shape == (90, 120, 3) and picture.dtype == np.uint8 and picture.std() > 5
    env = make("SafetyHopperVelocity-v1", render_mode="rgb_array_list", width=80, height=80)
    env.step(np.zeros(3))
    assert [p.shape for p in env.render()] == [(80, 80, 3)] * 2
    with pytest.raises(ValueError, match="render_mode=None must be"):
        make().render()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "SafetyPointGoal3-v0"}, "id='SafetyPointGoal3-v0' must be a registered id"),
        ({"name": "SafetyPointGoal1Vision-v0"}, "Vision-v0' is not supported: images"),
        ({"name": "SafetyCarRace1-v0"}, "is not supported: its walls are meshes"),
        ({"name": "SafetyPointGoal1Gymnasium-v0"}, "must be given to gymnasium.make"),
        ({"render_mode": "depth_array"}, "render_mode='depth_array' must be"),
        ({"width": 10}, "width=10 must be"),
        ({"camera_name": "vision"}, "camera_name='vision' must be 'track'"),
        ({"camera_name": "track", "camera_id": 1}, "camera_id=1 must be None"),
        ({"camera_id": 9}, "camera_id=9 must be from 0 to 3"),
        ({"config": {"hazard.num": 2}}, r"'hazard.num' \(did you mean hazards.num\?\)"),
        ({"config": {"lidar_conf.num_bins": 8}}, r"\['lidar_conf.num_bins'\]=8 must be 16"),
        ({"config": {"agent_name": "Cat"}}, "'Cat' must be one of Point, Car"),
        ({"config": {"placements_conf.extents": [0, 0, 1, 1]}}, "a square around the origin"),
        ({"config": {"hazards.num": -1}}, "hazards=-1 must be"),
        ({"apply_api_compatibility": True}, "must be False"),
    ],
)
def test_refusals_name_what_is_wrong(arguments, words):
    with pytest.raises(ValueError, match=words):
        make(**arguments)


def test_wrong_actions_are_refused():
    env = make()
    with pytest.raises(ValueError, match=r"shape \(3,\); it must be \(2,\)"):
        env.step(np.zeros(3))
    with pytest.raises(ValueError, match="must be finite"):
        env.step([np.nan, 0.0])
    with pytest.raises(NotImplementedError, match="multi-agent"):
        safety_gymnasium.make_ma("Ant", "2x4")


def test_own_environments_can_be_registered():
    safety_gymnasium.register(
        id="Mine-v0",
        entry_point=lambda: safety_gymnasium.make("SafetyPointGoal1-v0").unwrapped,
        max_episode_steps=2,
    )
    env = safety_gymnasium.make("Mine-v0")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step([0, 0])
    env.reset(seed=0)
    assert [env.step([0, 0])[4] for _ in range(2)] == [False, True]
    assert len(safety_gymnasium.vector.make("Mine-v0", num_envs=2).envs) == 2
    del safety_gymnasium.registry["Mine-v0"]


def test_no_jax():
    code = (
        "import sys, surefoot.safety_gymnasium as s; e = s.make('SafetyCarButton1-v0'); "
        "e.reset(seed=0); e.step([0, 0]); print('jax' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False"]


def test_a_training_loop_as_omnisafes():
    """Its environment class makes these calls; float32 stands for its tensors."""
    short = {"max_episode_steps": 100}
    for count in (1, 4):
        if count > 1:
            env = safety_gymnasium.vector.make(
                env_id="SafetyPointGoal1-v0", num_envs=count, **short
            )
            space = env.single_action_space
        else:
            env = safety_gymnasium.make(id="SafetyPointGoal1-v0", autoreset=True, **short)
            space = env.action_space
        assert isinstance(space, gymnasium.spaces.Box) and env.metadata["render_fps"] == 30
        rng = np.random.default_rng(0)
        obs, info = env.reset(seed=0, options=None)
        weights, returns, costs = np.zeros((60, 2), np.float32), np.zeros(count), np.zeros(count)
        ended = 0
        for _ in range(102):
            act = np.clip(obs.astype(np.float32) @ weights + rng.normal(size=(2,)), -1, 1)
            act = np.broadcast_to(act, env.action_space.shape).astype(np.float32)
            obs, reward, cost, terminated, truncated, info = env.step(act)
            parts = [np.asarray(x, np.float32) for x in (obs, reward, cost, terminated, truncated)]
            assert all(np.isfinite(part).all() for part in parts)
            returns, costs = returns + parts[1], costs + parts[2]
            if "final_observation" in info:
                last = [x if x is not None else np.zeros(60) for x in info["final_observation"]]
                assert np.array(last).size == 60 * count
                ended += 1
        assert ended == 1 and np.isfinite(returns).all() and (costs >= 0).all()
        env.close()


def test_a_training_loop_as_stable_baselines():
    """`make_vec_env`, `Monitor` and the collection of rollouts make these calls."""
    envs = [gymnasium.make("SafetyPointGoal1Gymnasium-v0", max_episode_steps=200) for _ in range(2)]
    for i, env in enumerate(envs):
        env.action_space.seed(i)
        assert env.unwrapped.spec is not None and env.get_wrapper_attr("render_mode") is None
        assert env.spec.max_episode_steps == 200
    observations = np.stack([env.reset(seed=3 + i)[0] for i, env in enumerate(envs)])
    rewards, episodes, steps, costs = 0.0, 0, 0, 0.0
    policy = np.zeros((60, 2), np.float32)
    while episodes < 2:
        noise = np.random.default_rng(steps).normal(size=(2, 2)).astype(np.float32)
        acts = np.clip(observations.astype(np.float32) @ policy + noise, -1, 1)
        for i, env in enumerate(envs):
            obs, reward, terminated, truncated, info = env.step(acts[i])
            rewards, costs, steps = rewards + reward, costs + info["cost"], steps + 1
            if terminated or truncated:
                info["terminal_observation"], info["TimeLimit.truncated"] = obs, truncated
                obs, _ = env.reset()
                episodes += 1
            observations[i] = obs
    assert steps == 400 and np.isfinite(rewards) and costs >= 0
    for env in envs:
        env.close()
