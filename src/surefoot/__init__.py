"""Surefoot: safe reinforcement learning that looks before it steps."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from surefoot.envs.adapters import adapt as adapt
    from surefoot.envs.tasks import make as make

# The public face, loaded on first use: who only acts with an exported policy needs no JAX.
_FACE = {
    "make": "surefoot.envs.tasks",
    "adapt": "surefoot.envs.adapters",
}

__all__ = ["__version__", *_FACE]


def __getattr__(name: str) -> Any:
    if name in _FACE:
        from importlib import import_module

        return getattr(import_module(_FACE[name]), name)
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")


with suppress(ImportError):  # an exported policy acts without gymnasium too
    from surefoot.envs.registration import register

    register()
    del register
