"""What every config checks first: that each field is of its kind, and every number finite."""

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

MOST = {"steps": 10**12, "steps_per_epoch": 10**9, "max_steps": 10**9}
"""Largest whole numbers of fields that may be large."""
MOST_OTHERS = 10**6
LARGEST = 1e18
"""Of floats, so that their squares are still finite in single precision."""


def check_types(config: Any) -> None:
    """Raise a ValueError that names the first field, its value and what it must be."""
    hints = _hints(type(config))
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    check_kinds(values, hints)
    for name, value in values.items():
        most = MOST.get(name, MOST_OTHERS) if _is_whole(hints[name]) else LARGEST
        numbers: Any = value if isinstance(value, tuple) else (value,)
        if any(isinstance(x, Real) and abs(x) > most for x in numbers):  # type: ignore[operator]
            raise ValueError(f"{name}={value} must be at most {most:,}")


def check_kinds(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first value that is missing or not of its kind."""
    for name, kind in kinds.items():
        if name not in values:
            raise ValueError(f"{name} is missing")
        if not _fits(values[name], kind):
            raise ValueError(f"{name}={values[name]!r} must be {_words(kind)}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is Literal:
        return isinstance(value, type(get_args(hint)[0]))  # a config tells which there are
    if origin is list:
        return isinstance(value, list) and all(_fits(v, get_args(hint)[0]) for v in value)
    if origin is tuple:
        inner = get_args(hint)
        fitting = isinstance(value, tuple) and all(_fits(v, inner[0]) for v in value)
        return fitting and (inner[-1] is Ellipsis or len(value) == len(inner))
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else None
        return number is not None and abs(number) < math.inf  # which NaN is not
    return isinstance(value, hint)


def _is_whole(hint: Any) -> bool:
    return hint is int or any(_is_whole(one) for one in get_args(hint))


def _words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_words(one) for one in inner)
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin is list:
        return f"a list of {_words(inner[0]).removeprefix('a ')}s"
    if origin is tuple:
        count = "" if inner[-1] is Ellipsis else f"{len(inner)} "
        return f"a tuple of {count}{_words(inner[0]).removeprefix('a ')}s"
    if hint is type(None):
        return "None"
    names = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text"}
    return names.get(hint) or f"a {hint.__name__}"
