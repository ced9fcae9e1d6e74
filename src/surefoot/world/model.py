"""The interface between a task and the learned model: known parts and learned parts.

A task provides a `TaskModel`: pure functions for its known parts. The ensemble learns the rest.
`black_box.BlackBox` is the model of a task with no known parts.
"""

from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from surefoot.core.arrays import Flag, Index, RandomKey, Scalar, Tree
from surefoot.core.spaces import ActionSpec

State = Tree
"""An imagined state: any pytree that the task model defines."""
Bounds = tuple[Float[Array, " F"], Float[Array, " F"]]
"""Lower and upper bounds of the features."""
Outcome = tuple[State, Scalar, Float[Array, " k"], Flag]
"""Next state, reward, costs and termination."""


class TaskModel(Protocol):
    """Known parts of a task. Functions take one state unless a leading axis is given; use vmap.

    A *record* is a real state as the dataset stores it, a flat vector. A *state* is the pytree that
    imagination carries from step to step.
    """

    @property
    def known(self) -> tuple[str, ...]:
        """Names of the known parts, for reports."""
        ...

    @property
    def takes_observations(self) -> bool:
        """Whether records are observations; if not, environments must provide their states."""
        ...

    @property
    def cost_names(self) -> tuple[str, ...]:
        """Names of the k costs."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the F features, for reports."""
        ...

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the Gaussian outputs, then of the binary ones; features stand for changes."""
        ...

    @property
    def observation_size(self) -> int: ...
    @property
    def record_size(self) -> int: ...
    @property
    def feature_size(self) -> int: ...
    @property
    def target_size(self) -> int:
        """Number of Gaussian outputs, D."""
        ...

    @property
    def binary_size(self) -> int:
        """Number of binary outputs, b, which follow the Gaussian ones."""
        ...

    def record(self, state: Tree) -> np.ndarray:
        """Records [N, R] of the states of N real environments."""
        ...

    def initial_records(self, key: RandomKey, n: int) -> Float[Array, "n R"] | None:
        """Records of n initial states as resets draw them; None if only real resets can."""
        ...

    def restore(self, key: RandomKey, records: Float[Array, "N R"]) -> State:
        """States (leading axis N) to start imagining from."""
        ...

    def features(self, state: State) -> Float[Array, " F"]:
        """Input of the learned model, without the action."""
        ...

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        """The features of a record."""
        ...

    def target(
        self,
        before: Float[Array, " R"],
        after: Float[Array, " R"],
        reward: Scalar,
        cost: Float[Array, " k"],
        terminated: Flag,
    ) -> Float[Array, " D+b"]:
        """Target of the learned model for a real step; NaN where a Gaussian output has none."""
        ...

    def advance(
        self,
        state: State,
        action: Float[Array, " A"],
        prediction: Float[Array, " D"],
        binary: Float[Array, "2 b"],
        bounds: Bounds,
    ) -> Outcome:
        """Next state, reward, costs and termination from a prediction of the learned model.

        `binary` holds the probabilities of the binary outputs, and uniform numbers to draw them
        with. `bounds` is the range of the features in the data; clip the features to it, or
        imagined states can diverge.
        """
        ...

    def observe(self, state: State) -> Float[Array, " O"]:
        """The observation of the policy."""
        ...

    def for_horizon(self, horizon: int) -> "TaskModel":
        """A model whose states last for rollouts of `horizon` steps."""
        ...

    def follow_real(
        self,
        states: State,
        records: Float[np.ndarray, "T n R"],
        ended: Bool[np.ndarray, "T n"],
        start: Int[np.ndarray, " B"],
        place: Int[np.ndarray, " B"],
        within: Bool[np.ndarray, "H B"],
    ) -> tuple[State, Bool[np.ndarray, "H B"]]:
        """Make imagined rollouts meet the same random events of the task as real ones.

        Args:
            states: States (leading axis B) restored from the records at the starts.
            records: Records before every real step of n environments.
            ended: Whether an episode ended with each real step.
            start: First real step of each rollout.
            place: Environment of each rollout.
            within: Whether a rollout includes its step number 0, 1, ..., H - 1.

        Returns:
            The states with the real events (such as goal positions) still to come, and a mask of
            the steps within a rollout after which real features can be compared with imagined ones.
        """
        ...

    def events(self, state: State) -> Index:
        """Number of events since `restore` after which features are not comparable to real ones.

        0 if no event changes the meaning of the features.
        """
        ...


@runtime_checkable
class HasGoals(Protocol):
    """A task model whose policies head for a goal, which can be shown elsewhere."""

    def observe_toward(self, state: State, angle: Scalar) -> Float[Array, " O"]:
        """What the policy would observe if the goal lay at this angle of the world."""
        ...


def training_rows(
    model: TaskModel,
    actions: ActionSpec,
    before: Float[Array, "N R"],
    action: Shaped[Array, "N ..."],
    reward: Float[Array, " N"],
    cost: Float[Array, "N k"],
    after: Float[Array, "N R"],
    terminated: Bool[Array, " N"],
    failed: Bool[Array, " N"] | None = None,
) -> dict[str, Float[Array, "N _"]]:
    """`inputs` and `targets` of the learned model for N real steps.

    Steps in which the simulation `failed` have targets of NaN, from which a fit learns nothing.
    """
    features = jax.vmap(model.record_features)(before)
    targets = jax.vmap(model.target)(before, after, reward, cost, terminated)
    if failed is not None:
        targets = jnp.where(failed[:, None], jnp.nan, targets)
    return {"inputs": jnp.concatenate([features, actions.encode(action)], -1), "targets": targets}
