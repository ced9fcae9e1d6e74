"""Plans for robots with many actions: the policy steers, shown goals in other directions.

Sequences of a quadruped's twelve actions are too many to search, and most make it fall. Its policy
already walks to whatever goal it is shown. So a plan is a direction, judged by imagining the policy
with a goal there, or rest: the centre of all actions. See `planner` for the other kinds of plans.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from surefoot.core.arrays import Index, RandomKey, Scalar
from surefoot.world import planner
from surefoot.world.imagination import LearnedWorld, Policy
from surefoot.world.model import HasGoals, State
from surefoot.world.planner import Plan, PlannerConfig, Value


def plan_function(config: PlannerConfig) -> Callable[..., Plan]:
    """The function, `steer` or `planner.plan`, that makes plans of the config's kind."""
    return steer if config.kind == "steer" else planner.plan


def steer(
    config: PlannerConfig,
    world: LearnedWorld,
    states: State,
    mean: Float[Array, "N H A"],
    policy: Policy,
    value: Value | None,
    key: RandomKey,
) -> Plan:
    """The safe direction of highest value; without a safe one, the direction of lowest cost.

    The policy reacts to what each elite imagines, so these plans are not open-loop. `mean` is not
    used: there is no sequence of actions to improve.
    """
    model = world.model
    if not isinstance(model, HasGoals):
        raise ValueError(
            f"kind='steer' needs a model with goals, and {type(model).__name__} has none; use cem"
        )
    rest = planner.initial_mean(config, world.actions, 1)[0, 0]
    act_key, roll_key = jax.random.split(key)
    angles = 2 * jnp.pi * jnp.arange(config.directions) / config.directions

    def judge(index: Index, angle: Scalar) -> tuple[Array, Array, Array]:
        """The first action of a direction, its value and its cost; the last index is rest."""
        resting = index == config.directions
        observe = lambda state: model.observe_toward(state, angle)
        act = lambda obs, key: jnp.where(resting, rest, policy(obs, key))
        action = act(jax.vmap(observe)(states), act_key)
        args = (config, world, states, action, act, value, roll_key, observe)
        return action, *planner.outcome(*args)

    numbers = jnp.arange(config.directions + 1)
    actions, values, costs = jax.vmap(judge)(numbers, jnp.append(angles, 0.0))
    index = planner.best_of(config, values, costs)
    n = jnp.arange(mean.shape[0])
    worst = costs[index, n]
    action = world.actions.encode(actions[index, n])
    return Plan(action, mean, values[index, n], worst, worst <= config.cost_threshold)
