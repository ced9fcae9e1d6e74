"""Planning under models set by hand: weights, worst cases, and a double integrator that brakes."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import lsq_linear, minimize
from scipy.stats import halfnorm

from surefoot.core.spaces import ActionSpec
from surefoot.world.black_box import BlackBox
from surefoot.world.ensemble import rounded
from surefoot.world.imagination import LearnedWorld
from surefoot.world.planner import (
    PlannerConfig,
    evaluate,
    initial_mean,
    plan,
    weights,
    worst_cost,
)
from toys import linear_ensemble

BOX = ActionSpec(1, low=(-1.0,), high=(2.0,))


def line(members=1, std=0.0, elites=None):
    """Members under which one number grows by itself: s' = s + 1 + its own number / 10."""
    offsets = 1.0 + np.arange(members)[:, None] / 10
    return linear_ensemble(np.zeros((members, 2, 1)), offsets, 1, std, elites)


def known(reward, cost, **more):
    return BlackBox(1, terminates=False, reward_fn=reward, cost_fn=cost, **more)


def test_a_soft_planner_weights_safe_plans_by_the_exponential_of_their_value():
    config = PlannerConfig(kappa=2.0, fewest_safe=2, cost_threshold=0.5)
    values, costs = jnp.array([1.0, 2.0, 9.0]), jnp.array([0.5, 0.0, 0.6])
    e = np.exp([2.0, 4.0])
    np.testing.assert_allclose(weights(config, values, costs), [*e / e.sum(), 0.0], rtol=1e-5)


def test_a_soft_planner_weights_all_by_their_cost_where_too_few_are_safe():
    config = PlannerConfig(kappa=2.0, fewest_safe=3, cost_threshold=0.5)
    values, costs = jnp.array([1.0, 2.0, 9.0]), jnp.array([0.5, 0.0, 0.6])
    e = np.exp([-1.0, 0.0, -1.2])
    np.testing.assert_allclose(weights(config, values, costs), e / e.sum(), rtol=1e-5)


def test_a_plain_planner_keeps_the_best_share():
    """Of 8 plans a quarter: the two safe ones of most value, or the two that cost least."""
    values = jnp.array([3.0, 8.0, 1.0, 4.0, 7.0, 2.0, 6.0, 5.0])
    costs = jnp.array([0.0, 2.0, 0.0, 0.0, 1.0, 3.0, 4.0, 0.0])
    safe = PlannerConfig("cem", elite_share=0.25, fewest_safe=4)
    np.testing.assert_allclose(weights(safe, values, costs), [0, 0, 0, 0.5, 0, 0, 0, 0.5])
    few = PlannerConfig("cem", elite_share=0.25, fewest_safe=5)
    np.testing.assert_allclose(weights(few, values, costs + jnp.arange(8)), [0.5, 0, 0.5, *[0] * 5])
    # More are asked for than are safe: then all that are.
    wide = PlannerConfig("cem", elite_share=0.75, fewest_safe=4)
    np.testing.assert_allclose(weights(wide, values, costs), [0.25, 0, 0.25, 0.25, 0, 0, 0, 0.25])


@pytest.mark.parametrize("weight", [1.0, 0.25, 0.0])
def test_value_is_a_mean_and_cost_the_worst_case_over_elites(weight):
    """Members 0 and 2 are elite and step by 1 and 1.2; member 1 must not be asked."""
    task_model = known(
        lambda s, a, t: t[0] + a[0],
        lambda s, a, t: jnp.stack([t[0], 2 * a[0]]),
        cost_names=("far", "hard"),
    )
    doing, begin = (0.0, 1.5), (0.0, 2.0)
    plans = jnp.broadcast_to(jnp.array(doing)[:, None, None, None], (2, 2, 2, 1))  # [C, H, N, A]
    value, cost = jax.jit(
        lambda key: evaluate(
            PlannerConfig(horizon=2, particles=3, value_weight=weight), 
            LearnedWorld(task_model, BOX, line(3, elites=(0, 2))), jnp.array(begin)[:, None], plans,
            lambda obs, key: 100 * obs[:, 0], key,
        )
    )(jax.random.key(0))  # fmt: skip
    for c, action in enumerate(doing):
        for n, start in enumerate(begin):
            values, costs = [], []
            for step in (1.0, 1.2):
                one, two = start + step, start + 2 * step
                values.append(one + two + 2 * action + weight * 100 * two)
                costs.append(max(one + two, 4 * action))
            np.testing.assert_allclose(value[c, n], np.mean(values), rtol=1e-5)
            np.testing.assert_allclose(cost[c, n], np.max(costs), rtol=1e-5)


def test_an_accelerator_plans_with_rounded_weights():
    """Steps of 1.003 are steps of 1 in 16 bits, of which 8 are for the fraction."""
    free = known(lambda s, a, t: t[0], lambda s, a, t: jnp.zeros(1))
    ensemble = linear_ensemble(np.zeros((2, 2, 1)), np.full((2, 1), 1.003), 1)
    config = PlannerConfig(horizon=1, particles=1)

    def value(ensemble):
        plans, state = jnp.zeros((1, 1, 1, 1)), jnp.zeros((1, 1))
        key = jax.random.key(0)
        return evaluate(config, LearnedWorld(free, BOX, ensemble), state, plans, None, key)[0]

    np.testing.assert_allclose(value(ensemble), 1.003, rtol=1e-5)
    np.testing.assert_allclose(value(rounded(ensemble)), 1.0, rtol=1e-5)
    traced = jax.jit(value).trace(ensemble)
    for platform, is_rounded in (("cpu", False), ("cuda", True)):
        program = traced.lower(lowering_platforms=(platform,)).as_text()
        assert ("bf16" in program) == is_rounded


def test_cost_is_the_worst_case_over_particles_and_all_plans_meet_the_same_luck():
    """One step of noise e ~ N(0, 1): cost |e|, the greatest of 2 elites x 3 particles; reward e."""
    task_model = known(lambda s, a, t: t[0] - s[0] - 1, lambda s, a, t: jnp.abs(t - s - 1))
    still = linear_ensemble(np.zeros((2, 2, 1)), np.ones((2, 1)), 1, std=1.0)
    n, config = 4000, PlannerConfig(horizon=1, particles=3)
    value, cost = jax.jit(
        lambda key: evaluate(
            config,
            LearnedWorld(task_model, BOX, still),
            jnp.zeros((n, 1)),
            jnp.zeros((2, 1, n, 1)),
            None,
            key,
        )
    )(jax.random.key(1))
    np.testing.assert_array_equal(value[0], value[1])
    np.testing.assert_array_equal(cost[0], cost[1])
    greatest = quad(lambda x: 1 - halfnorm.cdf(x) ** 6, 0, 10)[0]
    np.testing.assert_allclose(np.mean(cost[0]), greatest, atol=0.04)
    np.testing.assert_allclose(np.std(value[0]), 1 / np.sqrt(6), atol=0.02)


def test_nothing_counts_after_an_end():
    """An episode ends with the step that goes beyond 2.5: the third one from 0, none from -9."""
    task_model = BlackBox(
        1,
        reward_fn=lambda s, a, t: t[0],
        cost_fn=lambda s, a, t: jnp.ones(1),
        termination_fn=lambda s, a, t: t[0] > 2.5,
    )
    value, cost = jax.jit(
        lambda key: evaluate(
            PlannerConfig(horizon=4), LearnedWorld(task_model, BOX, line()),
            jnp.array([[0.0], [-9.0]]),
            jnp.zeros((1, 4, 2, 1)), lambda obs, key: jnp.full(len(obs), 50.0), key,
        )
    )(jax.random.key(0))  # fmt: skip
    # Features stay within 6 deviations of the data, so -9 is first cut to -6.
    np.testing.assert_allclose(value[0], [1 + 2 + 3, -6 - 5 - 4 - 3 + 50])
    np.testing.assert_allclose(cost[0], [3, 4])


def test_the_next_plan_starts_where_this_one_goes_on_and_bounds_are_reached_not_passed():
    """The best first action is a tenth of s, so from 2 on 0.2, 0.3 …; of the second the most."""
    box = ActionSpec(2, low=(-1.0, -5.0), high=(2.0, 0.5))
    grows = linear_ensemble(np.zeros((1, 3, 1)), np.ones((1, 1)), 1)
    config = PlannerConfig(horizon=4, particles=1, iterations=20, kappa=15.0, smoothing=0.5)
    task_model = known(lambda s, a, t: a[1] - (a[0] - s[0] / 10) ** 2, lambda s, a, t: jnp.zeros(1))
    start = initial_mean(config, box, 3)
    np.testing.assert_array_equal(start, np.tile([0.5, -2.25], (3, 4, 1)))
    result = jax.jit(
        lambda key: plan(
            config,
            LearnedWorld(task_model, box, grows),
            jnp.full((3, 1), 2.0),
            start,
            None,
            None,
            key,
        )
    )(jax.random.key(0))
    np.testing.assert_allclose(result.action, np.tile([0.2, 0.5], (3, 1)), atol=0.12)
    expected = np.tile([[0.3, 0.5], [0.4, 0.5], [0.5, 0.5]], (3, 1, 1))
    np.testing.assert_allclose(result.mean[:, :3], expected, atol=0.12)
    np.testing.assert_array_equal(result.mean[:, 3], start[:, 3])
    assert max(result.action[:, 1].max(), result.mean[..., 1].max()) <= 0.5
    assert result.safe.all()
    np.testing.assert_allclose(result.value, 4 * 0.5, atol=0.2)


def test_an_action_that_is_held_counts_at_every_step_and_is_left_bit_by_bit():
    """Plan 0.5, -1, each for three steps, from 0 by 1 a step: reward a s', cost a^2."""
    config = PlannerConfig(horizon=2, hold=3, particles=1, iterations=1, samples=2, fewest_safe=1)
    task_model = known(lambda s, a, t: a[0] * t[0], lambda s, a, t: a**2)
    plans = jnp.array([0.5, -1.0])[None, :, None, None]
    first = jnp.zeros((1, 1))
    value, cost = evaluate(
        config,
        LearnedWorld(task_model, BOX, line()),
        first,
        plans,
        lambda obs, key: obs[:, 0],
        jax.random.key(0),
    )
    np.testing.assert_allclose(value, 0.5 * (1 + 2 + 3) - (4 + 5 + 6) + 6)
    np.testing.assert_allclose(cost, 3 * 0.25 + 3)
    # Only 0.25 costs nothing, and is never drawn: the start is kept. A third of each
    # action is done after a step, and a third of the next (at last of the middle, 0.5) has come in.
    begin = jnp.zeros((1, 2, 1))
    free = known(lambda s, a, t: a[0], lambda s, a, t: (a != 0.25) * 1.0)
    result = plan(
        config, LearnedWorld(free, BOX, line()), first, begin + 0.25, None, None, jax.random.key(0)
    )
    np.testing.assert_allclose(result.action, [[0.25]])
    np.testing.assert_allclose(result.mean[0, :, 0], [0.25, (2 * 0.25 + 0.5) / 3], rtol=1e-6)
    np.testing.assert_allclose(result.value, 6 * 0.25, rtol=1e-6)


def test_a_policy_that_knows_the_way_is_listened_to():
    """Only actions within 0.001 of 0.7 are safe, which chance does not find."""
    task_model = known(lambda s, a, t: a[0], lambda s, a, t: (jnp.abs(a - 0.7) > 0.001) * 1.0)
    config = PlannerConfig(horizon=3, particles=1, iterations=2)

    @jax.jit
    def find(knows, key):
        policy = lambda obs, key: jnp.where(knows, 0.7, 3.0) + jnp.zeros((len(obs), 1))
        start = initial_mean(config, BOX, 2)
        return plan(
            config,
            LearnedWorld(task_model, BOX, line()),
            jnp.zeros((2, 1)),
            start,
            policy,
            None,
            key,
        )

    result = find(True, jax.random.key(0))
    assert result.safe.all()
    np.testing.assert_allclose(result.action, 0.7)
    np.testing.assert_allclose(result.mean[:, :2], 0.7)
    np.testing.assert_allclose(result.value, 2.1, rtol=1e-5)
    lost = find(False, jax.random.key(0))
    assert not lost.safe.any() and (lost.worst_cost > 0).all()


# A double integrator in the plane: v' = v + dt a, p' = p + dt v', |a| <= 1 in each direction.
DT, T, RADIUS = 0.5, 10, 0.7
GOAL = np.array([1.5, 0.0])
PLANE = ActionSpec(2, low=(-1.0, -1.0), high=(1.0, 1.0))
ONE = np.array([[1.0, DT], [0.0, 1.0]])
PUSH = np.array([DT**2, DT])
CEM = PlannerConfig("cem", horizon=T, particles=1, iterations=30, smoothing=0.5)


def integrator():
    matrix = np.zeros((6, 4))
    for i in range(2):
        matrix[[2 + i, 4 + i, 4 + i], [i, i, 2 + i]] = DT, DT**2, DT
    return linear_ensemble(matrix[None], np.zeros((1, 4)), 4)


def plane(price):
    """Reward is -0.1 of the squared distance to the goal; the disc around the origin costs."""
    return BlackBox(
        4,
        terminates=False,
        reward_fn=lambda s, a, t: -0.1 * jnp.sum((t[:2] - GOAL) ** 2),
        cost_fn=lambda s, a, t: price * (jnp.sum(t[:2] ** 2, keepdims=True) < RADIUS**2),
    )


def gains():
    """Of each place by each action before it, [T, T]."""
    gain = np.zeros((T, T))
    for u in range(T):
        state = PUSH
        for t in range(u, T):
            gain[t, u] = state[0]
            state = ONE @ state
    return gain


def optimum(start):
    """The best return of T steps from p at rest, by sequential quadratic programming.

    From both sides of the disc: apart from that choice the problem is smooth, its objective convex.
    """
    gain, result = gains(), []
    places = lambda a: start + gain @ a.reshape(T, 2)
    loss = lambda a: 0.1 * np.square(places(a) - GOAL).sum()
    slope = lambda a: (0.2 * gain.T @ (places(a) - GOAL)).ravel()
    clear = lambda a: np.square(places(a)).sum(1) - RADIUS**2
    turn = lambda a: (2 * gain[:, :, None] * places(a)[:, None]).reshape(T, 2 * T)
    for side in (-1.0, 1.0):
        guess = np.zeros((T, 2))
        guess[: T // 3] = 1.0, 0.6 * side
        guess[T // 3 : 2 * T // 3] = 0.0, -0.6 * side
        way = minimize(
            loss, guess.ravel(), jac=slope, method="SLSQP", bounds=[(-1, 1)] * 2 * T,
            constraints={"type": "ineq", "fun": clear, "jac": turn},
        )  # fmt: skip
        assert way.success and clear(way.x).min() > -1e-6
        result.append(-way.fun)
    return max(result)


def free_optimum(start):
    """The same if there were no zone: bounded least squares, one direction at a time."""
    ways = [lsq_linear(gains(), np.full(T, GOAL[i] - start[i]), (-1, 1)) for i in range(2)]
    return -0.2 * sum(way.cost for way in ways)


def starts(n):
    """At rest on the far side of the disc, in the way of a straight line."""
    rng = np.random.default_rng(0)
    p = np.stack([rng.uniform(-1.6, -1.3, n), rng.uniform(-0.3, 0.3, n)], 1)
    return np.concatenate([p, np.zeros((n, 2))], 1)


@partial(jax.jit, static_argnums=0)
def drive(config, price, first, key):
    """Returns [n], places [T, n, 2] and plans of the planner in the true world."""

    def step(carry, key):
        state, mean = carry
        result = plan(
            config, LearnedWorld(plane(price), PLANE, integrator()), state, mean, None, None, key
        )
        v = state[:, 2:] + DT * result.action
        p = state[:, :2] + DT * v
        return (jnp.concatenate([p, v], 1), result.mean), (p, result)

    begin = (first, initial_mean(config, PLANE, len(first)))
    _, (places, result) = jax.lax.scan(step, begin, jax.random.split(key, T))
    return -0.1 * jnp.square(places - GOAL).sum((0, 2)), places, result


def nearest(places):
    """How near each episode came to the middle of the zone, [n]."""
    return np.linalg.norm(places, axis=-1).min(0)


def test_a_double_integrator_finds_its_way_around_a_forbidden_zone():
    first = starts(6)
    reward, places, result = drive(CEM, 1.0, jnp.asarray(first, jnp.float32), jax.random.key(0))
    assert result.safe.all()  # there always was a way
    assert nearest(places).min() >= RADIUS
    best = np.array([optimum(start[:2]) for start in first])
    free = np.array([free_optimum(start[:2]) for start in first])
    assert (best < 1.03 * free).all()  # the zone is in the way
    worse = np.asarray(reward) / best
    assert worse.min() > 0.999 and worse.mean() < 1.06 and worse.max() < 1.1
    # Without a price it goes through: so the zone is kept by planning, and by nothing else.
    _, through, _ = drive(CEM, 0.0, jnp.asarray(first, jnp.float32), jax.random.key(0))
    assert (nearest(through) < RADIUS).all()


@pytest.mark.slow
@pytest.mark.parametrize("config", [CEM, replace(CEM, kind="soft", kappa=20.0)])
def test_hundreds_of_episodes_never_enter_the_zone(config):
    first = jnp.asarray(starts(300), jnp.float32)
    _, places, result = drive(config, 1.0, first, jax.random.key(1))
    assert result.safe.all()
    assert nearest(places).min() >= RADIUS
    assert np.median(np.linalg.norm(places[-1] - GOAL, axis=-1)) < 0.6  # and they get there


def test_the_worst_case_of_following_a_policy():
    """The action now, then the policy's: from 0 by 1 or 1.1 a step, cost a tenth of s' plus a."""
    task_model = known(lambda s, a, t: 0.0, lambda s, a, t: t / 10 + a)
    policy = lambda obs, key: obs / 10
    act, first = jnp.array([[0.5], [-1.0]]), jnp.array([[0.0], [1.0]])
    for horizon, hold in ((1, 1), (3, 1), (2, 2)):
        config = PlannerConfig(horizon=horizon, hold=hold, particles=2)
        result = jax.jit(
            lambda key, config=config: worst_cost(
                config, LearnedWorld(task_model, BOX, line(2)), first, act, policy, key
            )
        )(jax.random.key(0))
        for n in range(2):
            s, total = float(first[n, 0]), 0.0
            for t in range(horizon * hold):
                a = float(act[n, 0]) if t == 0 else s / 10
                s += 1.1
                total += s / 10 + a
            np.testing.assert_allclose(result[n], total, rtol=1e-5)


def test_actions_that_cannot_be_planned_are_refused():
    with pytest.raises(ValueError, match="a choice among 4"):
        initial_mean(PlannerConfig(), ActionSpec(4, discrete=True), 1)
    with pytest.raises(ValueError, match="must be finite"):
        initial_mean(PlannerConfig(), ActionSpec(1, low=(-1.0,), high=(np.inf,)), 1)


@pytest.mark.parametrize(
    "field, value, right",
    [
        ("kind", "hard", "one of 'soft', 'cem'"),
        ("horizon", 0, "at least 1"),
        ("hold", 0, "at least 1"),
        ("samples", 1, "at least 2"),
        ("fewest_safe", 101, "at most samples=100"),
        ("actor_share", 1.5, "at most 1"),
        ("smoothing", 1.0, "below 1"),
        ("elite_share", 0.0, "above 0"),
        ("kappa", 0.0, "above 0"),
        ("value_weight", -0.5, "at least 0"),
        ("cost_threshold", -0.1, "at least 0"),
        ("particles", 2.5, "a whole number"),
    ],
)
def test_invalid_settings_are_named(field, value, right):
    with pytest.raises(ValueError, match=f"{field}=.*{right}"):
        PlannerConfig(**{field: value})
