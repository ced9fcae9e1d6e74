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
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

C = TypeVar("C")
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


def check(config: Any) -> None:
    """Check the type and the bounds of every field of a config dataclass."""
    for name, hint in _hints(type(config)).items():
        check_value(name, getattr(config, name), hint)


def check_values(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Check that every name of `hints` is in `values`, and of that type and within its bounds."""
    for name, hint in hints.items():
        if name not in values:
            raise ValueError(f"{name} is missing")
        check_value(name, values[name], hint)


def check_value(name: str, value: Any, hint: Any) -> None:
    """Raise a ValueError that names the value unless it fits the annotated type `hint`."""
    limits = _limits(hint)
    if not _fits(value, hint):
        raise ValueError(f"{name}={value!r} must be {_describe(hint)}")
    numbers: Any = value if isinstance(value, tuple | list) else (value,)
    for x in numbers:
        if not _is_number(x):
            continue
        if any(x not in limit for limit in limits):
            raise ValueError(f"{name}={value!r} must be {' and '.join(map(str, limits))}")
        largest = LARGEST_INT if isinstance(x, Integral) else LARGEST_FLOAT
        if _exceeds(x, largest) and not any(math.isfinite(r.most) for r in limits):
            raise ValueError(f"{name}={value!r} must be at most {largest:,}")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise a ValueError with the nearest choice unless `value` is one of them."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(
            f"{name}={value!r} is unknown{did_you_mean(value, choices)}. "
            f"Known: {', '.join(choices)}"
        )


def did_you_mean(word: Any, choices: Iterable[str]) -> str:
    """A hint at the nearest choice, to follow a message; empty if none is near."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = get_close_matches(str(word).lower(), by_lower, n=1, cutoff=0.5)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""


def changed(config: C, changes: Mapping[str, Any]) -> C:
    """A config with some fields changed; all others keep their values.

    Inner configs are changed by dotted names or by nested mappings: `{"ppo.clip": 0.1}` and
    `{"ppo": {"clip": 0.1}}` are the same.
    """
    values: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    names = [f.name for f in fields(config)]  # type: ignore[arg-type]
    for key, value in changes.items():
        name, _, rest = key.partition(".")
        if name not in names:
            hint = did_you_mean(name, names)
            raise ValueError(f"{type(config).__name__} has no field {name!r}{hint}")
        if rest or (isinstance(value, Mapping) and is_dataclass(getattr(config, name))):
            more = {rest: value} if rest else value
            inner.setdefault(name, {}).update(more)
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


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """All settings of a config, or of nested dicts, by dotted name: ppo.clip, ppo.epochs, …"""
    items = config.items() if isinstance(config, Mapping) else vars(config).items()
    result: dict[str, Any] = {}
    for name, value in items:
        if is_dataclass(value) or isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain values, nested ones as dicts."""
    return dataclasses.asdict(config)


def from_dict(kind: type[C], values: Mapping[str, Any]) -> C:
    """The inverse of `to_dict`, also after a journey through JSON, which has no tuples."""
    hints = _hints(kind)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        hint = did_you_mean(unknown[0], hints)
        raise ValueError(f"{kind.__name__} has no field {unknown[0]!r}{hint}")
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


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def _typed(hint: Any, value: Any) -> Any:
    """A value of config.json as the field's type has it."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        kinds = [h for h in (hint, *get_args(hint)) if isinstance(h, type) and is_dataclass(h)]
        return from_dict(kinds[0], value) if kinds else value
    return value


def _limits(hint: Any) -> list[Range]:
    """The bounds in an annotated type, also inside a union or a tuple."""
    own = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Range)]
    return own + [limit for inner in get_args(hint) for limit in _limits(inner)]


def _fits(value: Any, hint: Any) -> bool:
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
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        return _is_number(value) and abs(value) < math.inf  # false for NaN
    return hint is Any or isinstance(value, origin or hint)


def _exceeds(x: Any, largest: float) -> bool:
    return abs(x) > largest


def _is_number(x: Any) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool)


def _describe(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        limits = [str(limit) for limit in _limits(hint)]
        return ", ".join(
            [
                f"{_describe(inner[0])}, {limits[0]}" if limits else _describe(inner[0]),
                *limits[1:],
            ]
        )
    if origin in (Union, UnionType):
        return " or ".join(_describe(one) for one in inner)
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin in (list, tuple):
        count = f"{len(inner)} " if origin is tuple and inner[-1] is not Ellipsis else ""
        words = _describe(inner[0]).removeprefix("a ").replace("number", "numbers", 1)
        return f"a {origin.__name__} of {count}{words}"
    names = {
        bool: "True or False", int: "a whole number", float: "a finite number", str: "a text",
        type(None): "None",
    }  # fmt: skip
    return names.get(hint) or f"a {getattr(origin or hint, '__name__', hint)}"


def check_types(config: Any) -> None:  # until every config has its bounds on its fields
    check(config)


check_kinds = check_values
