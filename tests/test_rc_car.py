"""The RC car against a branch-by-branch scalar car, scipy's solver, and numbers worked by hand."""

from math import atan, atan2, cos, pi, sin, sqrt, tan

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from surefoot.envs.rc_car import dynamics
from surefoot.envs.rc_car.env import RCCarConfig, RCCarEnv
from surefoot.envs.rc_car.model import RCCarModel
from surefoot.envs.rc_car.solver import integrate


def sign(a):
    return float(a > 0) - float(a < 0)


def fold(a):
    return (pi - abs(a)) * sign(a) if abs(a) > pi / 2 else a


def scalar_derivative(state, command):
    """The textbook form: slip angles, folded, and a branch for every case."""
    m, lf, lr, nf, nr = 2.645, 0.137, 0.120, 12.1, 13.8178
    cx, ca, iz, mu_s, mu_k = 103.94, 56.4, 0.0558, 1.37, 1.96
    _, _, psi, vx, vy, r = state
    u, d = command
    if abs(vx) < 0.01 and abs(vy) < 0.01:
        af = ar = 0.0
    else:
        af = fold(atan2(vy + lf * r, vx) - d)
        ar = fold(atan2(vy - lr * r, vx))
    if abs(af) <= atan(3 * mu_s * nf / ca):
        t = tan(af)
        ff = -ca * t + ca**2 / (3 * mu_s * nf) * abs(t) * t - ca**3 / (27 * (mu_s * nf) ** 2) * t**3
    else:
        ff = -mu_s * nf * sign(af)
    k = None
    if abs(u - vx) < 0.01 or (abs(u) < 0.01 and abs(vx) < 0.01):
        k = 0.0
    elif abs(vx) >= 0.01:
        k = (u - vx) / abs(vx)
    if k is None:
        fx, fy = sign(u) * mu_s * nr, 0.0
    else:
        K = abs(k)
        lon, lat = cx * K / (1 + K), ca * tan(ar) / (1 + K)
        g = sqrt(lon**2 + lat**2)
        if g <= 3 * mu_s * nr:
            f = g - g**2 / (3 * mu_s * nr) + g**3 / (27 * (mu_s * nr) ** 2)
        else:
            f = mu_k * nr
        fx, fy = (sign(k) * lon * f / g, -lat * f / g) if g else (0.0, 0.0)
    v, beta = sqrt(vx**2 + vy**2), atan2(vy, vx)
    return [
        v * cos(beta + psi),
        v * sin(beta + psi),
        r,
        (fx - ff * sin(d)) / m + r * vy - 0.025 * vx,
        (ff * cos(d) + fy) / m - r * vx - 0.025 * vy,
        (lf * ff * cos(d) - lr * fy) / iz - 0.02 * r,
    ]


def derivative(xp, state, command):
    """Time derivative [..., 6] of states [..., 6] under commands [..., 2]."""
    wheel, steering = command[..., 0], command[..., 1]
    turned = xp.stack([wheel, xp.cos(steering), xp.sin(steering)])
    rates = dynamics.rates(xp, xp.moveaxis(state, -1, 0), turned, dynamics.CAR)
    return xp.moveaxis(rates, 0, -1)


def random_cars(rng, n, speed, wheel):
    """States [n, 6] with velocities within ±speed, and commands [n, 2]."""
    v = rng.uniform(-speed, speed, (n, 3))
    state = np.concatenate([rng.uniform(-1, 1, (n, 2)), rng.uniform(-4, 4, (n, 1)), v], 1)
    return state, np.stack([rng.uniform(0, wheel, n), rng.uniform(-pi / 6, pi / 6, n)], 1)


def special_cars():
    """Every combination of standing, creeping and driving, either way, with the wheel likewise."""
    speeds = [0.0, 0.004, -0.008, 0.5, -0.5, 3.0]
    wheels = [0.0, 0.005, 0.504, 2.0]
    grid = np.meshgrid(speeds, speeds, [0.0, 4.0], wheels, [0.0, -0.4], indexing="ij")
    vx, vy, r, u, d = (g.ravel() for g in grid)
    zero = np.zeros_like(vx)
    return np.stack([zero, zero, zero + 0.3, vx, vy, r], 1), np.stack([u, d], 1)


@pytest.mark.parametrize(
    "cars",
    [random_cars(np.random.default_rng(0), 2000, 4.0, 10.0), special_cars()],
    ids=["random", "special"],
)
def test_derivative_equals_the_branching_one(cars):
    state, command = cars
    expected = [scalar_derivative(s, a) for s, a in zip(state.tolist(), command, strict=True)]
    np.testing.assert_allclose(derivative(np, state, command), expected, rtol=1e-11, atol=2e-11)


def test_standing_car_with_still_wheel_stays():
    assert not derivative(np, np.zeros(6), np.zeros(2)).any()


def test_spinning_wheel_pulls_with_all_its_grip():
    rate = derivative(np, np.zeros(6), np.array([5.0, 0.3]))
    np.testing.assert_allclose(rate, [0, 0, 0, 1.37 * 13.8178 / 2.645, 0, 0], rtol=1e-14)


def test_jax_derivative_is_numpys():
    state, command = random_cars(np.random.default_rng(1), 500, 2.0, 10.0)
    with jax.enable_x64(True):
        got = derivative(jnp, jnp.asarray(state), jnp.asarray(command))
        assert got.dtype == jnp.float64
    np.testing.assert_allclose(got, derivative(np, state, command), rtol=1e-12, atol=1e-12)


def scipy_step(state, command, dt):
    fun = lambda t, y: scalar_derivative(y.tolist(), command)
    return solve_ivp(fun, (0.0, dt), state, rtol=1e-3, atol=1e-5).y[:, -1]


def test_integrate_is_scipys_rk45():
    rng = np.random.default_rng(2)
    state = dynamics.initial_state(np, RCCarConfig(target_speed=0.8), rng.random((40, 5)))
    for _ in range(12):
        _, command = random_cars(rng, 40, 1.0, 2.0)
        command = command.tolist()
        expected = [scipy_step(s, a, 0.1) for s, a in zip(state, command, strict=True)]
        got = integrate(state, np.array(command), 0.1)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)
        state = got


def test_integrate_is_scipys_rk45_where_forces_jump():
    # Slow cars, forwards and backwards, run into the dead bands: large errors, steps cut short.
    state, command = random_cars(np.random.default_rng(10), 120, 0.3, 2.0)
    expected = [scipy_step(s, a, 0.1) for s, a in zip(state, command.tolist(), strict=True)]
    parts = [integrate(state[i : i + 40], command[i : i + 40], 0.1) for i in (0, 40, 80)]
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=0, atol=1e-9)


def test_integrate_is_scipys_rk45_in_most_steps_at_full_throttle():
    # The sliding tyre's force jumps: there, rounding decides which step size is chosen, and scipy
    # differs as often from itself when its input is perturbed by 1e-15.
    rng = np.random.default_rng(3)
    state = dynamics.initial_state(np, RCCarConfig(), rng.random((40, 5)))
    errors = []
    for _ in range(6):
        _, command = random_cars(rng, 40, 1.0, 10.0)
        pairs = zip(state, command.tolist(), strict=True)
        expected = np.array([scipy_step(s, a, 0.1) for s, a in pairs])
        state = integrate(state, command, 0.1)
        errors.append(np.abs(state - expected).max(1))
    assert np.mean(np.concatenate(errors) > 1e-10) < 0.04


def test_integrate_starts_and_ends_like_scipy_where_nothing_moves():
    still, command = np.zeros((1, 6)), np.zeros((1, 2))
    assert not integrate(still, command, 0.1).any()
    off, spin = np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]), np.array([[3.0, 0.0]])
    expected = scipy_step(off[0], spin[0].tolist(), 0.1)
    np.testing.assert_allclose(integrate(off, spin, 0.1)[0], expected, rtol=0, atol=1e-11)


def test_cars_do_not_depend_on_each_other():
    state, command = random_cars(np.random.default_rng(4), 40, 2.0, 10.0)
    together = integrate(state, command, 0.1)
    order = np.random.default_rng(5).permutation(40)
    assert (integrate(state[order], command[order], 0.1) == together[order]).all()
    others, commands = random_cars(np.random.default_rng(7), 40, 2.0, 10.0)
    others[17], commands[17] = state[17], command[17]
    assert (integrate(others, commands, 0.1)[17] == together[17]).all()
    # Another number of cars is another compiled program, which may round otherwise.
    alone = integrate(state[17:18], command[17:18], 0.1)
    np.testing.assert_allclose(alone, together[17:18], rtol=1e-12, atol=1e-13)


def test_integrate_ends_with_nan_states():
    state, command = random_cars(np.random.default_rng(6), 40, 1.0, 2.0)
    whole = integrate(state, command, 0.1)
    state[3, 4] = np.nan
    broken = integrate(state, command, 0.1)
    assert np.isnan(broken[3, 4])
    others = np.arange(40) != 3
    assert (broken[others] == whole[others]).all()


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_observation_by_hand(xp):
    # On the y axis, 2 m from the centre of a circle of 1.5 m, heading west: along the tangent.
    state = xp.asarray([0.0, 2.0, pi, 3.0, 0.5, 0.25])
    expected = [0.5, 0.0, 0.5, -2 * 3 / 4 - 0.25]
    np.testing.assert_allclose(dynamics.observe(xp, state, 1.5), expected, atol=2e-6)
    # Heading north there: the tangent lies a quarter turn to the left; full turns change nothing.
    for turns in (-1, 0, 3):
        north = xp.asarray([0.0, 2.0, pi / 2 + 2 * pi * turns, 0.0, 0.0, 0.0])
        assert float(dynamics.observe(xp, north, 1.5)[1]) == pytest.approx(pi / 2, abs=1e-5)


def test_reward_and_cost_by_hand():
    along, against = 3 * pi / 2, pi / 2
    state = np.array(
        [
            [-1.0, 0.0, along, 1.0, 0.0, 0.0],  # perfect
            [-1.3, 0.0, along, 0.0, 3.0, 0.0],  # 0.3 outside, 2 m/s too fast
            [-0.6, 0.0, against, 0.6, 0.8, 9.0],  # 0.4 inside, half a turn off
            [-1.0, 0.0, along - 0.6 * pi, 1.0, 0.0, 0.0],  # a tenth of pi beyond a quarter turn
        ]
    )
    expected = [0.0, -0.3 - 0.25 * 4, -0.4 - 0.25 * (pi / 2) ** 2, -0.25 * (0.1 * pi) ** 2]
    reward, cost = dynamics.judge(np, RCCarConfig(), state)
    np.testing.assert_allclose(reward, expected, atol=1e-14)
    np.testing.assert_array_equal(cost, [0, 1, 0, 0])
    reward, cost = dynamics.judge(np, RCCarConfig(reward="fast"), state)
    np.testing.assert_allclose(reward, [1, 9, 1, 1], atol=1e-14)
    np.testing.assert_array_equal(cost, [0, 1, 0, 0])
    rim = np.array([[1.5, 0, 0, 0, 0, 0], [1.49, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(dynamics.judge(np, RCCarConfig(epsilon=0.5), rim)[1], [1, 0])


def test_initial_states_by_hand():
    uniform = np.array([[0.0] * 5, [0.5] * 5, [1.0] * 5])
    expected = [
        [-2.25, 0, 7 * pi / 6, 0, -0.6, -2],
        [-2.0, 0, 3 * pi / 2, 3, 0, 0],
        [-1.75, 0, 11 * pi / 6, 6, 0.6, 2],
    ]
    config = RCCarConfig(radius=2.0, target_speed=3.0)
    np.testing.assert_allclose(dynamics.initial_state(np, config, uniform), expected, atol=1e-14)


def test_environment_step_equals_its_parts():
    env = RCCarEnv(num_envs=5, seed=7)
    obs, _ = env.reset()
    # Environment i draws from the Mersenne twister of seed 7 + i.
    uniform = np.stack([np.random.RandomState(7 + i).random_sample(5) for i in range(5)])
    first = dynamics.initial_state(np, env.config, uniform)
    np.testing.assert_allclose(env.state(), first, atol=1e-15)
    action = np.array([[-0.8, 0.5], [-1.0, 1.0], [-0.6, -1.0], [-0.7, 3.0], [-0.9, 0.0]])
    command = np.array([[1, pi / 12], [0, pi / 6], [2, -pi / 6], [1.5, pi / 6], [0.5, 0]])
    obs, reward, terminated, truncated, info = env.step(action)
    pairs = zip(first, command.tolist(), strict=True)
    after = np.array([scipy_step(s, a, 0.1) for s, a in pairs])
    np.testing.assert_allclose(env.state(), after, atol=1e-11)
    distance = np.hypot(after[:, 0], after[:, 1]) - 1
    np.testing.assert_allclose(obs[:, 0], distance, atol=1e-10)
    np.testing.assert_array_equal(info["cost"][:, 0], distance >= 0.05)
    np.testing.assert_allclose(reward, dynamics.judge(np, env.config, after)[0], atol=1e-10)
    assert not terminated.any() and not truncated.any()


def test_fast_variant_rewards_speed():
    env = RCCarEnv(RCCarConfig(reward="fast"), num_envs=3, seed=0)
    env.reset()
    _, reward, *_ = env.step(np.zeros((3, 2)))
    np.testing.assert_allclose(reward, (env.state()[:, 3:5] ** 2).sum(1), rtol=1e-12)


def test_episodes_end_by_time_and_depend_on_their_seed_alone():
    config = RCCarConfig(max_episode_steps=3)
    many, one = RCCarEnv(config, num_envs=3, seed=10), RCCarEnv(config, num_envs=1, seed=12)
    many.reset()
    one.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (7, 3, 2))
    for t, action in enumerate(actions, start=1):
        obs, _, terminated, truncated, info = many.step(action)
        alone = one.step(action[2:])
        assert (obs[2] == alone[0][0]).all()
        assert not terminated.any()
        assert (truncated == (t % 3 == 0)).all()
        assert ("final_obs" in info) == (t % 3 == 0)


def test_picture_shows_car_and_circle():
    env = RCCarEnv(num_envs=8, seed=0, render_mode="rgb_array")
    env.reset()
    scenes = [env.scene(i) for i in range(8)]
    x = env.state()[:, 0]  # y is 0 at the start
    assert [scene.alert for scene in scenes] == (x <= -1.05).tolist()
    assert [shape.radius for shape in scenes[0].shapes] == [1.05, 1.0]
    assert scenes[0].glyph == "rc_car"
    np.testing.assert_array_equal(scenes[3].robot_xy, [x[3], 0.0])
    pictures = env.render()
    assert pictures is not None and len(pictures) == 8 and pictures[0].dtype == np.uint8


def test_model_replays_real_steps():
    """Given the true change, the imagined step is the real one."""
    env = RCCarEnv(num_envs=6, seed=3)
    model = RCCarModel(env.config)
    env.reset()
    rng = np.random.default_rng(1)
    far = jnp.full(3, 100.0)

    @jax.jit
    @jax.vmap
    def imagine(before, after):
        truth = model.target(before, after, 0.0, 0.0, False)
        state = model.restore(jax.random.key(0), before[None])[0]
        state, *rest = model.advance(state, None, truth, None, (-far, far))
        return state, model.observe(state), *rest

    for _ in range(15):
        before = model.record(env.state())
        obs, reward, _, _, info = env.step(rng.uniform(-1, 1, (6, 2)))
        state, sight, imagined, cost, ended = imagine(before, model.record(env.outcome))
        np.testing.assert_allclose(state, env.outcome, atol=2e-5)
        np.testing.assert_allclose(sight, obs, atol=2e-4)
        np.testing.assert_allclose(imagined, reward, atol=2e-4)
        np.testing.assert_array_equal(cost, info["cost"])
        assert not ended.any()


def test_model_turns_targets_into_the_cars_frame():
    model = RCCarModel(RCCarConfig())
    before = jnp.array([1.0, 1.0, pi / 2, 1.0, 0.0, 0.5])
    after = jnp.array([0.9, 1.2, pi / 2 + 0.1, 1.5, 0.2, 0.4])  # 0.2 ahead (north), 0.1 to the left
    np.testing.assert_allclose(
        model.target(before, after, 0.0, 0.0, False), [0.5, 0.2, -0.1, 0.2, 0.1, 0.1], atol=1e-6
    )
    np.testing.assert_array_equal(model.features(before), [1.0, 0.0, 0.5])
    bounds = jnp.zeros(3), jnp.full(3, 1.2)
    prediction = jnp.array([0.5, -0.2, 0.1, 0.2, 0.1, 0.1])
    state, *_ = model.advance(before, None, prediction, None, bounds)
    np.testing.assert_allclose(state, [0.9, 1.2, pi / 2 + 0.1, 1.2, 0.0, 0.6], atol=1e-6)


def test_model_starts_where_resets_do():
    records = np.asarray(RCCarModel(RCCarConfig()).initial_records(jax.random.key(0), 20_000))
    middle = np.array([-1.0, 0, 1.5 * pi, 1.0, 0, 0])
    half = np.array([0.25, 0, pi / 3, 1.0, 0.6, 2.0])
    assert (np.abs(records - middle) <= half + 1e-5).all()
    # A uniform variable has a third of its half-width squared for variance.
    np.testing.assert_allclose(records.mean(0), middle, atol=0.03)
    np.testing.assert_allclose(records.var(0), half**2 / 3, rtol=0.05, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RCCarConfig(radius=-1.0), "radius=-1.0"),
        (lambda: RCCarConfig(dt=float("nan")), "dt=nan"),
        (lambda: RCCarConfig(reward="slow"), "reward='slow'"),  # type: ignore[arg-type]
        (lambda: RCCarConfig(max_episode_steps=0), "max_episode_steps=0"),
        (lambda: dynamics.RCCarParameters(mass=0.0), "mass=0.0"),
        (lambda: dynamics.InitialSpread(heading=-0.1), "heading=-0.1"),
    ],
)
def test_impossible_values_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
