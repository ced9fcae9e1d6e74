"""The page of one run: curves, evaluation, model diagnosis, clips and settings."""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from surefoot.core.files import Damaged
from surefoot.report import figures
from surefoot.report.data import Group, RunData, load_run
from surefoot.report.groups import groups
from surefoot.report.page import MEDIA, Section, write_page
from surefoot.report.table import Table, duration, plural
from surefoot.runs.folder import RunFolder

CURVES = (
    "reward", "cost", "violations", "lambda", "imagined_reward", "imagined_cost", "model_error",
    "interventions",
)  # fmt: skip
"""Metrics that are drawn, where a run has them."""
MOST_MEDIA = 32 * 2**20
"""Bytes of a clip that the page may hold."""
DIAGNOSIS = (
    "The model's predictions against fresh real episodes of the policy. Long rollouts need not "
    "match step by step; totals of reward and cost should match."
)


def write_report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write one HTML page about a run; returns its path.

    The page holds clips (`clip.gif`, `clip.mp4`) and `diagnosis.png` of the run's folder, if they
    exist: `film` and `diagnose` write them. No code that the run refers to is executed.

    Args:
        run: The run's folder.
        out: The page; report.html in the run's folder if not given.
    """
    data = load_run(run)
    folder = RunFolder(data.path)
    [group] = groups([data])
    with TemporaryDirectory() as place:
        sections = list(_sections(group, data, folder, Path(place)))
        page = Path(place) / "report.html"
        lead = f"{data.state.capitalize()}: {plural(data.real_steps, 'real step')} of each seed"
        lead += (
            f" in {duration(data.seconds)}. Limit of the episode cost: {data.info.cost_limit:g}."
        )
        command = shlex.join(["surefoot", "report", str(run)])
        write_page(page, f"{group.label} on {group.task}", lead, [group], sections, command)
        if out is None:
            folder.write(page.name, page.read_bytes())
            return data.path / page.name
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        Path(out).write_bytes(page.read_bytes())
        return Path(out)


def _sections(group: Group, data: RunData, folder: RunFolder, place: Path) -> Iterator[Section]:
    names = [
        name for name in CURVES if any(isfinite(row.get(name, float("nan"))) for row in data.rows)
    ]
    drawn = [figures.draw_curves([group], name, place / f"{name}.png") for name in names]
    yield Section("Learning curves", figures=tuple(drawn))
    if data.evaluation:
        head = ("seed", "reward", "cost", "within the limit", "mean cost of the worst tenth")
        rows = [
            (
                str(one["seed"]), f"{one['reward']:,.2f}", f"{one['cost']:,.1f}",
                f"{one['within_limit']:.0%}", f"{one['cost_cvar']:,.1f}",
            )
            for one in data.evaluation
        ]  # fmt: skip
        text = f"On {plural(data.episodes or 0, 'fresh episode')} per seed."
        yield Section("Evaluation", text, tables=(Table(head, tuple(rows)),))
    if diagnosis := _copies(folder, place, "diagnosis.png"):
        yield Section("Model diagnosis", DIAGNOSIS, diagnosis)
    if clips := _copies(folder, place, "clip.gif", "clip.mp4"):
        yield Section("Film", figures=clips)
    seconds = data.phases
    if seconds:
        rows = tuple((name, duration(value)) for name, value in seconds.items())
        yield Section("Time", tables=(Table(("phase", "time"), rows),))


def _copies(folder: RunFolder, place: Path, *names: str) -> tuple[Path, ...]:
    """Copies of those files of a run that exist and are what their names promise."""
    copies = []
    for name in names:
        with suppress(OSError, Damaged, SyntaxError, Image.DecompressionBombError):
            (place / name).write_bytes(folder.files.read(name, MOST_MEDIA))
            if not MEDIA[Path(name).suffix].startswith("video"):
                with Image.open(place / name) as picture:
                    picture.verify()
            copies.append(place / name)
    return tuple(copies)
