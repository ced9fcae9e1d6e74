"""Surefoot: safe reinforcement learning that looks before it steps."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from surefoot.core.policy import Policy as Policy
    from surefoot.envs.gym.adapters import adapt as adapt
    from surefoot.envs.task import make as make
    from surefoot.runs.resume import resume as resume
    from surefoot.runs.train import evaluate as evaluate
    from surefoot.runs.train import policy_of as load
    from surefoot.runs.train import train as train
    from surefoot.use.diagnose import diagnose as diagnose

# The public face, loaded on first use: who only acts with an exported policy needs no JAX.
_FACE = {
    "make": ("surefoot.envs.task", "make"),
    "adapt": ("surefoot.envs.gym.adapters", "adapt"),
    "train": ("surefoot.runs.train", "train"),
    "resume": ("surefoot.runs.resume", "resume"),
    "evaluate": ("surefoot.runs.train", "evaluate"),
    "diagnose": ("surefoot.use.diagnose", "diagnose"),
    "load": ("surefoot.runs.train", "policy_of"),
    "Policy": ("surefoot.core.policy", "Policy"),
}

__all__ = [
    "Policy", "__version__", "adapt", "diagnose", "evaluate", "load", "make", "resume", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _FACE:
        from importlib import import_module

        module, attribute = _FACE[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")


with suppress(ImportError):  # an exported policy acts without gymnasium too
    from surefoot.envs.gym.registration import register

    register()
    del register
