"""A report as one self-contained HTML page."""

import base64
import html
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot import __version__
from surefoot.core.files import printable_lines
from surefoot.report.command import repeat_command
from surefoot.report.data import Group
from surefoot.report.figures import caption_of
from surefoot.report.summary import summary_table
from surefoot.report.table import Table

MEDIA = {".png": "image/png", ".gif": "image/gif", ".mp4": "video/mp4"}
STYLE = (Path(__file__).parent / "page.css").read_text()


@dataclass(frozen=True)
class Section:
    """A part of a report: paragraphs (separated by empty lines), tables and figures.

    Figures are PNG, GIF or MP4 files.
    """

    title: str
    text: str = ""
    figures: tuple[Path, ...] = ()
    tables: tuple[Table, ...] = ()


def write_page(
    path: Path,
    title: str,
    lead: str,
    groups: Sequence[Group],
    sections: Sequence[Section],
    command: str = "",
) -> Path:
    """Write the page: summary of the groups, the sections, commands and settings.

    `command` writes the page again.
    """
    made = f"Made on {time.strftime('%Y-%m-%d %H:%M')} with Surefoot {__version__}."
    body = [f"<header><h1>{escape(title)}</h1>{_paragraphs(lead)}</header>", "<main>"]
    if groups:
        body += ["<section><h2>Summary</h2>", _table(summary_table(groups)), "</section>"]
    body += [_section(section) for section in sections]
    if groups:
        body.append(_runs(groups, command))
    body += ["</main>", f"<footer><p>{escape(made)}</p></footer>"]
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>"
        + "\n".join(body)
        + "</body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def escape(text: str) -> str:
    """A text in which neither markup nor control characters have an effect."""
    return html.escape(printable_lines(text))


def _section(section: Section) -> str:
    parts = [f"<section><h2>{escape(section.title)}</h2>", _paragraphs(section.text)]
    parts += [_table(table) for table in section.tables]
    if section.figures:
        parts += ['<div class="figures">', *map(_figure, section.figures), "</div>"]
    return "\n".join([*parts, "</section>"])


def _runs(groups: Sequence[Group], command: str) -> str:
    """Machines, commands and settings of all runs, and what their models know of the task."""
    parts = ["<section><h2>Runs, commands and settings</h2>"]
    if command:
        parts.append(f"<h3>This page</h3>{_code(command)}")
    for group in groups:
        parts.append(f"<h3>{escape(f'{group.shown}, {group.task}')}</h3>")
        for run in group.runs:
            info = run.info
            text = (
                f"{run.path.resolve().name}: {run.state}, seeds {', '.join(map(str, info.seeds))}, "
                f"started {info.started} on {info.device} with version {info.version}; known parts "
                f"of the task: {', '.join(info.known) or 'none'}"
            )
            if run.error is not None:
                text += f"; it failed: {run.error}"
            parts += [_paragraphs(text), _code(repeat_command(info) or "not recorded")]
        config = _code(json.dumps(group.info.config, indent=1))
        parts.append(f"<details><summary>Settings</summary>{config}</details>")
    return "\n".join([*parts, "</section>"])


def _code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def _paragraphs(text: str) -> str:
    blocks = [block.strip() for block in text.split("\n\n")]
    return "".join(f"<p>{escape(block)}</p>" for block in blocks if block)


def _table(table: Table) -> str:
    """A table, which the style shows as cards on a narrow screen."""
    kind = "wide" if len(table.head) > 5 else "narrow"
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    rows = "".join(f"<tr>{_cells(table.head, row)}</tr>" for row in table.rows)
    caption = f'<p class="note">{escape(table.caption)}</p>' if table.caption else ""
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{caption}"
    )


def _cells(head: Iterable[str], row: Iterable[str]) -> str:
    cells = zip(head, row, strict=True)
    return "".join(f'<td data-name="{escape(n)}">{escape(cell)}</td>' for n, cell in cells)


def _figure(path: Path) -> str:
    kind = MEDIA[path.suffix]
    data = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    caption = escape(caption_of(path)) if kind == "image/png" else ""
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    text = caption or escape(path.stem)
    if kind == "video/mp4":
        return f'<figure><video controls loop muted src="{data}"></video>{below}</figure>'
    return f'<figure><img alt="{text}" src="{data}">{below}</figure>'
