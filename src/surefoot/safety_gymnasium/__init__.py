"""Safety-Gymnasium's interface: `import surefoot.safety_gymnasium as safety_gymnasium`.

docs/safety_gymnasium.md says what is equal to the reference, and what is left out.
"""

from gymnasium import make as gymnasium_make
from gymnasium import register as gymnasium_register

from surefoot.safety_gymnasium import registration, vector, wrappers
from surefoot.safety_gymnasium.builder import Builder
from surefoot.safety_gymnasium.registration import make, register, registry, spec
from surefoot.safety_gymnasium.vector import make as make_vec

__version__ = "1.0.0"
"""Version of the reference whose numbers these environments have."""

__all__ = [
    "Builder", "gymnasium_make", "gymnasium_register", "make", "make_vec", "register", "registry",
    "spec", "vector", "wrappers",
]  # fmt: skip


def make_ma(*_: object, **__: object) -> None:
    """Refused: multi-agent tasks are left out."""
    raise NotImplementedError("make_ma: multi-agent tasks are left out; use make")


registration.register_all()
