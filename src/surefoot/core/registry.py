"""Registries of named values, open to users: by call, by entry point, or by reference to a file.

A *reference* is `path/to/file.py:attribute` or `package.module:attribute`.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from surefoot.core.config import did_you_mean

T = TypeVar("T")


def is_reference(text: str) -> bool:
    """Whether a text has the form of a reference."""
    source, _, attribute = text.rpartition(":")
    return bool(source) and attribute.isidentifier()


def load_reference(text: str) -> Any:
    """The attribute that a reference names; a ValueError says what cannot be loaded and why."""
    source, _, attribute = text.rpartition(":")
    try:
        module = (
            _load_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
        )
    except (Exception, SystemExit) as error:
        file, hint = Path(source.replace(".", "/") + ".py"), ""
        if isinstance(error, ModuleNotFoundError) and not source.endswith(".py"):
            hint = "; install it, or set PYTHONPATH to the folder that holds it"
            hint = f"; for the file here: {file}:{attribute}" if file.is_file() else hint
        problem = f"{type(error).__name__}: {error}{hint}"
        raise ValueError(f"{source} cannot be imported: {problem}") from error
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        raise ValueError(f"{source} has no {attribute!r}{did_you_mean(attribute, names)}")
    return getattr(module, attribute)


def reference_to(value: Any) -> str | None:
    """A reference to a class or function that stands at the top of a module; None for others.

    Functions of a script that is being run have none: loading it would run it again.
    """
    module, name = sys.modules.get(getattr(value, "__module__", "")), getattr(value, "__name__", "")
    if module is None or module.__name__ == "__main__" or getattr(module, name, None) is not value:
        return None
    file = getattr(module, "__file__", None) or ""
    if "." in module.__name__ or "site-packages" in file or not file.endswith(".py"):
        return f"{module.__name__}:{name}"
    return f"{Path(file).resolve()}:{name}"


def absolute_reference(text: str) -> str:
    """A reference that holds from any working directory."""
    source, _, attribute = text.rpartition(":")
    return f"{Path(source).resolve()}:{attribute}" if source.endswith(".py") else text


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    # One module per file: loading it twice would make two versions of each class.
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        same = isinstance(file, str) and file.endswith(path.name) and Path(file).resolve() == path
        if same and module.__name__ != "__main__":
            return module
    name = f"surefoot_user_{path.stem}_{abs(hash(str(path))):x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        # As for a script, files beside it can be imported.
        sys.path.insert(0, str(path.parent))
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        finally:
            sys.path.remove(str(path.parent))
    return sys.modules[name]


def _listed(names: Iterable[str]) -> str:
    """Names in a row; those that differ only in a last digit together, as in Goal0-2."""
    groups: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        groups.setdefault((stem, stem != name), []).append(name)
    ranges = (f"{g[0]}-{g[-1][-1]}" if len(g) > 1 else g[0] for g in groups.values())
    return ", ".join(ranges)


class Registry(Generic[T]):
    """Values by name. Built-in ones are given as references and loaded on first use."""

    def __init__(self, kind: type[T], what: str, builtin: Mapping[str, str]):
        """`what` names the kind in messages; its plural names the entry-point group."""
        self._kind, self._what, self._builtin = kind, what, dict(builtin)
        self._values: dict[str, T] = {}

    def register(self, name: str, value: T, replace: bool = False) -> T:
        """Add a value; a name in use is refused unless `replace`."""
        if not replace and (name in self._builtin or name in self._values):
            raise ValueError(f"{self._what} {name!r} exists already; choose another name")
        self._values[name] = value
        return value

    def __contains__(self, name: str) -> bool:
        return name in self._values or name in self._builtin or name in self._entry_points()

    def __iter__(self) -> Iterator[str]:
        """Names of all values: built-in, installed and registered."""
        return iter(dict.fromkeys((*self._builtin, *self._entry_points(), *self._values)))

    def __getitem__(self, name: str) -> T:
        """The value called `name`, or that a reference names."""
        if name in self._values:
            return self._values[name]
        if name in self._builtin:
            value = load_reference(self._builtin[name])
        elif is_reference(str(name)):
            return self._checked(name, load_reference(name))
        elif name in (installed := self._entry_points()):
            value = self._checked(name, installed[name].load())
        else:
            if name.endswith(".py"):
                raise ValueError(
                    f"{self._what}={name!r} must name what is in the file: {name}:NAME, such as "
                    f"the class or function that makes it"
                )
            hint = did_you_mean(name, self)
            raise ValueError(f"{self._what}={name!r} is unknown{hint}. Known: {_listed(self)}")
        return self._values.setdefault(name, value)

    def _checked(self, name: str, value: object) -> T:
        if not isinstance(value, self._kind) and callable(value):
            try:
                value = value()
            except TypeError as error:
                raise ValueError(
                    f"{self._what}={name!r} cannot be called without arguments: {error}"
                ) from error
        if not isinstance(value, self._kind):
            raise ValueError(
                f"{self._what}={name!r} is a {type(value).__name__}, not a {self._what}"
            )
        return value

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=f"surefoot.{self._what}s")}
