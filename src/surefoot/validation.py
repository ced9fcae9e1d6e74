"""What every config checks first: that each field is of its kind, and every number finite."""

import math
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check_types(config: Any) -> None:
    """Raise a ValueError that names the first field, its value and what it must be."""
    hints = _hints(type(config))
    for field in fields(config):
        value = getattr(config, field.name)
        if not _fits(value, hints[field.name]):
            wanted = _words(hints[field.name])
            raise ValueError(f"{field.name}={value!r} must be {wanted}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is Literal:
        return True  # a config knows best what to say of its choices
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(v, get_args(hint)[0]) for v in value)
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else None
        return number is not None and abs(number) < math.inf  # which NaN is not
    return isinstance(value, hint)


def _words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_words(one) for one in inner)
    if origin is tuple:
        count = "" if inner[-1] is Ellipsis else f"{len(inner)} "
        return f"a tuple of {count}{_words(inner[0]).removeprefix('a ')}s"
    if hint is type(None):
        return "None"
    names = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text"}
    return names.get(hint) or f"a {hint.__name__}"
