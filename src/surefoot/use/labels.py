"""Readable names for what a learned model takes and says."""

from surefoot.envs.navigation.goal_model import EgoGoalModel, PaperGoalModel
from surefoot.envs.rc_car.model import RCCarModel
from surefoot.world.model import BlackBox, TaskModel


def feature_names(knowledge: TaskModel) -> list[str]:
    """Names of the model's inputs, actions aside."""
    if isinstance(knowledge, EgoGoalModel | PaperGoalModel | RCCarModel):
        return list(knowledge.feature_names)
    kind = "observation" if isinstance(knowledge, BlackBox) else "feature"
    return _numbered(kind, knowledge.feature_size)


def output_names(knowledge: TaskModel) -> list[str]:
    """Names of what the model says: Gaussian outputs, then binary ones. Features mean changes."""
    features = feature_names(knowledge)
    size = knowledge.target_size + knowledge.binary_size
    if isinstance(knowledge, EgoGoalModel | PaperGoalModel | RCCarModel):
        return list(knowledge.output_names)
    if isinstance(knowledge, BlackBox):
        signals = [] if knowledge.reward_fn else ["reward"]
        signals += [] if knowledge.cost_fn else list(knowledge.cost_names)
        return (features + signals + ["end"])[:size]
    return _numbered("output", size)


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name} {i}" for i in range(count)]
