"""Imports go downwards only: docs/architecture.md says which room may know which."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "surefoot"
LEVELS = (
    ("core",),
    ("envs", "world", "learn"),
    ("algorithms", "safety_gymnasium"),
    ("runs",),
    ("use",),
    ("benchmark", "report"),
    ("api",),
    ("experiments",),
    ("paper",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem == "api")


def room_of(module: str) -> str:
    return module.split(".")[1]


def imported(path: Path) -> list[str]:
    """Modules of the package that a file imports, also inside functions and for types."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return [name for name in names if name.startswith("surefoot.")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_from_its_own_room_and_rooms_below(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for name in imported(path):
        other = room_of(name)
        if other not in LEVEL:  # the package's own attributes, such as __version__
            continue
        assert other == own or LEVEL[other] < LEVEL[own], f"{own} must not import {name}"


def test_every_file_has_a_room_and_at_most_350_lines():
    assert {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES} == set(LEVEL)
    long = {path.name: n for path in FILES if (n := len(path.read_text().splitlines())) > 350}
    assert not long
