"""Hooks of the documentation's build (mkdocs.yml).

They fill tables from the code, turn formulas into MathML, which browsers draw without scripts, and
leave raw results out of the site.
"""

import html
import re
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePosixPath
from posixpath import normpath

from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.core.config import field_help
from surefoot.envs.family.tasks import describe_families
from surefoot.envs.task import TASKS, describe

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
TABLE = re.compile(r"^<!-- table: (\w+) (\S+) -->$", re.M)


def on_files(files, config):
    """Keep only those files of docs/results that a page links to."""
    linked = set()
    for file in files.documentation_pages():
        text = Path(file.abs_src_path).read_text(encoding="utf-8")
        folder = PurePosixPath(file.src_uri).parent
        linked |= {normpath(str(folder / target)) for _, _, target, _ in LINK.findall(text)}
    for file in list(files):
        raw = file.src_uri.startswith("results/") and not file.src_uri.endswith(".md")
        if raw and file.src_uri not in linked:
            files.remove(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Fill tables; links to files outside docs become names, or links to the repository."""
    markdown = TABLE.sub(lambda match: TABLES[match[1]](match[2]), markdown)
    folder = PurePosixPath(page.file.src_uri).parent

    def relink(match):
        picture, text, target, _ = match.groups()
        path = normpath(str("docs" / folder / target))
        inside = path.startswith("docs/") and not (Path(config.docs_dir) / path[5:]).is_dir()
        if picture or ":" in target or inside:
            return match[0]
        return f"[{text}]({config.repo_url}/blob/main/{path})" if config.repo_url else text

    return LINK.sub(relink, markdown)


def on_page_content(content, page, config, files):
    """Formulas as MathML; spreads without line breaks."""
    from latex2mathml.converter import convert

    def formula(match):
        display = "block" if match[2] == "[" else "inline"
        return convert(html.unescape(match[3]).strip(), display=display)

    # A mean and its spread stay on one line.
    content = content.replace(" ± ", "\u00a0±\u00a0")
    return FORMULA.sub(formula, content)


def options(task: str) -> str:
    """The options of a task."""
    rows = describe(TASKS[task])["options"]
    return _table(
        ("option", "default", "meaning"), [(r["name"], r["default"], r["help"]) for r in rows]
    )


def tasks(names: str) -> str:
    """Sizes and limits of several tasks."""
    rows = []
    for row in (describe(TASKS[name]) for name in names.split(",")):
        sizes = " / ".join(str(size) for size in row["observations"].values())
        limits = ", ".join(f"{name} ≤ {limit:g}" for name, limit in row["cost_limits"].items())
        rows.append((row["name"], sizes, row["actions"], row["max_episode_steps"], limits))
    return _table(("task", "observation", "actions", "steps", "cost limit"), rows)


def family(_: str) -> str:
    """Lengths of the observations of the navigation tasks."""
    rows = {row["name"]: row for row in describe_families()}
    columns = [f"{name}{level}" for name, row in rows.items() for level in row["levels"]]
    robots = next(iter(rows.values()))["robots"]
    sizes = {name: size for row in rows.values() for name, size in row["observations"].items()}
    return _table(
        ("robot", *columns), [(r, *(sizes[f"{r}{column}"] for column in columns)) for r in robots]
    )


def settings(algorithm: str) -> str:
    """The settings of an algorithm, nested ones by dotted name."""
    config = ALGORITHMS[algorithm].config()
    return _table(("setting", "default", "meaning"), list(_settings(config, "")))


def _settings(config, prefix):
    help_ = field_help(type(config))
    for one in fields(config):
        value, name = getattr(config, one.name), f"{prefix}{one.name}"
        if is_dataclass(value):
            yield from _settings(value, f"{name}.")
        elif name != "cost_limit":  # the task's
            yield name, value, help_.get(one.name, "")


def _table(head, rows) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for first, *rest in rows:
        cells = [
            f"`{first}`",
            *(f"`{c}`" if i == 0 and len(head) == 3 else str(c) for i, c in enumerate(rest)),
        ]
        lines.append(
            "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"
        )
    return "\n".join(lines)


TABLES = {"options": options, "family": family, "tasks": tasks, "settings": settings}
