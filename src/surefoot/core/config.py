"""Configs: frozen dataclasses whose fields carry their type, bounds and help text.

    @dataclass(frozen=True)
    class PPOConfig:
        clip: Annotated[float, Range(above=0, below=1)] = 0.2
        "How far the probability ratio may leave 1 before it is clipped."

        def __post_init__(self) -> None:
            check(self)

`check` raises a ValueError that names the field, its value and what it must be. `changed`, `flat`,
`to_dict` and `from_dict` serve the command line, Python callers and config.json alike.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

C = TypeVar("C")
Hint = Any
"""The annotation of a field; may be any of typing's special forms."""
LARGEST_INT = 10**9
LARGEST_FLOAT = 1e18
"""Squares of smaller numbers stay finite in single precision."""


@dataclass(frozen=True)
class Range:
    """Bounds of a number, or of every number of a tuple; None is exempt."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, x: float) -> bool:
        return self.least <= x <= self.most and self.above < x < self.below

    def __str__(self) -> str:
        words = (
            ("at least", self.least), ("above", self.above), ("at most", self.most),
            ("below", self.below),
        )  # fmt: skip
        return ", ".join(f"{word} {x:,}" for word, x in words if math.isfinite(x))


Count = Annotated[int, Range(least=1)]
Width = Annotated[int, Range(least=1, most=1_000_000)]
"""Size of a layer, or of another array that is held as a whole."""
NonNegativeInt = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(least=0)]
Fraction = Annotated[float, Range(least=0, most=1)]
"""From 0 to 1, both included."""
Share = Annotated[float, Range(least=0, below=1)]
"""From 0 to 1, 1 excluded."""
PositiveShare = Annotated[float, Range(above=0, most=1)]
"""From 0 to 1, 0 excluded."""


def check(config: object) -> None:
    """Check the type and the bounds of every field of a config dataclass."""
    check_values(vars(config), _hints(type(config)))


def check_values(values: Mapping[str, object], hints: Mapping[str, Hint]) -> None:
    """Check that every name of `hints` is in `values`, and of that type and within its bounds."""
    for name, hint in hints.items():
        if name not in values:
            raise ValueError(f"{name} is missing")
        check_value(name, values[name], hint)


def check_value(name: str, value: object, hint: Hint) -> None:
    """Raise a ValueError that names the value unless it fits the annotated type `hint`."""
    if not _fits(value, hint):
        raise ValueError(f"{name}={value!r} must be {_describe(hint)}")
    limits = _limits(hint)
    values = value.values() if isinstance(value, dict) else value
    for x in values if isinstance(values, Iterable) else (value,):
        if not _is_number(x):
            continue
        if any(x not in limit for limit in limits):
            raise ValueError(f"{name}={value!r} must be {' and '.join(map(str, limits))}")
        largest = LARGEST_INT if isinstance(x, Integral) else LARGEST_FLOAT
        if abs(x) > largest and not any(math.isfinite(r.most) for r in limits):
            raise ValueError(f"{name}={value!r} must be at most {largest:,}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise a ValueError with the nearest choice unless `value` is one of them."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(
            f"{name}={value!r} is unknown{did_you_mean(value, choices)}. "
            f"Known: {', '.join(choices)}"
        )


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """A hint at the nearest choice, to follow a message; empty if none is near."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = get_close_matches(str(word).lower(), by_lower, n=1, cutoff=0.5)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""


def changed(config: C, changes: Mapping[str, object]) -> C:
    """A config with some fields changed; all others keep their values.

    Inner configs are changed by dotted names or by nested mappings: `{"ppo.clip": 0.1}` and
    `{"ppo": {"clip": 0.1}}` are the same.
    """
    values: dict[str, object] = {}
    inner: dict[str, dict[str, object]] = {}
    for key, value in changes.items():
        name, _, rest = key.partition(".")
        _check_field(type(config), name)
        if rest:
            inner.setdefault(name, {})[rest] = value
        elif isinstance(value, Mapping) and is_dataclass(getattr(config, name)):
            inner.setdefault(name, {}).update(value)
        else:
            values[name] = value
    for name, more in inner.items():
        current = values.get(name, getattr(config, name))
        if not is_dataclass(current):
            raise ValueError(
                f"{name}={current!r} has no fields; {name}.{next(iter(more))} is unknown"
            )
        values[name] = changed(current, more)
    return replace(config, **values)  # type: ignore[type-var]


def flat(config: object, prefix: str = "") -> dict[str, Any]:
    """All settings of a config, or of nested dicts, by dotted name: ppo.clip, ppo.epochs, …"""
    result = {}
    for name, value in (config if isinstance(config, Mapping) else vars(config)).items():
        if is_dataclass(value) or isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain values, nested ones as dicts."""
    return dataclasses.asdict(config)


def from_dict(kind: type[C], values: Mapping[str, object]) -> C:
    """The inverse of `to_dict`, also after a journey through JSON, which has no tuples."""
    hints = _hints(kind)
    for name in sorted(values):
        _check_field(kind, name)
    return kind(**{name: _typed(hints[name], value) for name, value in values.items()})


def field_help(kind: type) -> dict[str, str]:
    """The docstring under each field of a config dataclass."""
    import ast
    import inspect
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: " ".join(str(doc.value.value).split())
        for field, doc in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
    }


def _check_field(kind: type, name: str) -> None:
    if name not in _hints(kind):
        hint = did_you_mean(name, _hints(kind))
        raise ValueError(f"{kind.__name__} has no field {name!r}{hint}")


@cache
def _hints(kind: type) -> dict[str, Hint]:
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def _typed(hint: Hint, value: object) -> object:
    """A value of config.json as the field's type has it."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        kinds = [h for h in (hint, *get_args(hint)) if isinstance(h, type) and is_dataclass(h)]
        return from_dict(kinds[0], value) if kinds else value
    return value


def _limits(hint: Hint) -> list[Range]:
    """The bounds in an annotated type, also inside a union or a tuple."""
    own = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Range)]
    return own + [limit for inner in get_args(hint) for limit in _limits(inner)]


def _fits(value: Any, hint: Hint) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _fits(value, inner[0])
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner and not isinstance(value, bool)
    if origin in (list, tuple):
        same = isinstance(value, origin) and all(_fits(x, inner[0]) for x in value)
        return same and (origin is list or inner[-1] is Ellipsis or len(value) == len(inner))
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        return all(_fits(k, inner[0]) and _fits(x, inner[1]) for k, x in pairs)
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        return _is_number(value) and abs(value) < math.inf  # false for NaN
    return hint is Any or isinstance(value, origin or hint)


def _is_number(x: object) -> TypeGuard[float]:
    return isinstance(x, Real) and not isinstance(x, bool)


NAMES = {
    bool: "True or False",
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    type(None): "None",
}


def _describe(hint: Hint) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return ", ".join([_describe(inner[0]), *map(str, _limits(hint))])
    if origin in (Union, UnionType):
        return " or ".join(map(_describe, inner))
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin in (list, tuple):
        count = f"{len(inner)} " if origin is tuple and inner[-1] is not Ellipsis else ""
        words = _describe(inner[0]).removeprefix("a ").replace("number", "numbers", 1)
        return f"a {origin.__name__} of {count}{words}"
    return NAMES.get(hint) or f"a {getattr(origin or hint, '__name__', hint)}"
