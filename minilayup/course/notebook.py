"""What every notebook of the course has to look like, and its numbers in prose, which come from stored results.

`faults` says what is wrong with a notebook; `fill` writes the stored numbers into a text anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .lesson import stored

SECTIONS = [  # (id, kind, how it begins or what it contains)
    ("title", "markdown", "# {n} · "),
    ("able", "markdown", "## You will be able to"),
    ("setup-text", "markdown", "## Set up"),
    ("setup", "code", 'course.open("{n}")'),
    ("step-text", "markdown", "## One step, traced"),
    ("step", "code", ""),
    ("wrong-text", "markdown", "### A wrong call"),
    ("wrong", "code", "except "),
    ("figure-text", "markdown", "## The figure"),
    ("figure", "code", "figures."),
    ("exercise-{n}-1", "markdown", "### {n}.1 · "),
    ("stub-{n}-1", "code", "answer_{n}_1"),
    ("check-{n}-1", "code", 'check("{n}.1", answer_{n}_1)'),
    ("exercise-{n}-2", "markdown", "### {n}.2 · "),
    ("stub-{n}-2", "code", "answer_{n}_2"),
    ("check-{n}-2", "code", 'check("{n}.2", answer_{n}_2)'),
    ("exercise-{n}-3", "markdown", "### {n}.3 · "),
    ("stub-{n}-3", "code", "answer_{n}_3"),
    ("check-{n}-3", "code", 'check("{n}.3", answer_{n}_3)'),
    ("questions", "markdown", "## Questions"),
    ("claims", "markdown", "## Claimed, measured, not tested"),
    ("summary", "markdown", "## Summary"),
    ("references", "markdown", "## References"),
    ("next", "markdown", "## Next"),
]

NUMBER = re.compile(
    r"(?P<shown>[-−+]?\d[\d.,]*(?:e[-−+]?\d+)?(?P<percent> ?%)?)<!-- =(?P<file>\w+) (?P<path>\S+) (?P<form>\S+) -->"
)
COMMENT = re.compile(r"<!-- =.*?-->")


def fill(text: str) -> str:
    """The text with each number that names its source, ``2.4<!-- =lesson01 cnn.beta .1f -->``, written anew.

    Raises: FileNotFoundError or KeyError for a source that is not there.
    """

    def value(match: re.Match[str]) -> str:
        found: Any = stored(match["file"])
        for key in match["path"].split("."):
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise KeyError(
                    f"data/results/{match['file']}.json has no {match['path']}: {key!r} is not there"
                ) from None
        shown = format(found, match["form"]).replace("%", " %").replace("-", "−")
        return f"{shown}<!-- ={match['file']} {match['path']} {match['form']} -->"

    return NUMBER.sub(value, text)


def refresh(path: Path, alt: str | None = None) -> bool:
    """Write the stored numbers into a notebook's prose anew; whether anything has changed.

    Args:
        alt: the alt text of the static picture, which the figure itself says.
    """
    notebook = json.loads(path.read_text("utf-8"))
    before = json.dumps(notebook)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = fill(source(cell))
            if alt is not None:
                text = re.sub(r"!\[[^\]]*\]\((figures/[^)]+)\)", lambda found: f"![{alt}]({found[1]})", text)
            cell["source"] = text.splitlines(keepends=True)
    if json.dumps(notebook) == before:
        return False
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return True


def source(cell: dict[str, Any]) -> str:
    """A cell's text."""
    return "".join(cell["source"])


def faults(path: Path) -> list[str]:
    """What is wrong with a lesson's notebook, in words; nothing if it is as docs/lessons.md says."""
    notebook = json.loads(path.read_text("utf-8"))
    number, cells = path.name[:2], notebook["cells"]
    found = []
    if notebook["metadata"].get("kernelspec", {}).get("name") != "python3":
        found.append("kernelspec is not python3")
    if "widgets" in notebook["metadata"]:
        found.append("widget state is stored")
    ids = [cell["id"] for cell in cells]
    if len(set(ids)) != len(ids):
        found.append("two cells have one id")
    wanted = [(id.format(n=number), kind, words.format(n=number)) for id, kind, words in SECTIONS]
    present = [id for id in ids if id in {w for w, _, _ in wanted}]
    if present != [id for id, _, _ in wanted]:
        missing = [id for id, _, _ in wanted if id not in ids]
        found.append(f"cells are missing: {missing}" if missing else "cells are not in order")
    by_id = {cell["id"]: cell for cell in cells}
    for id, kind, words in wanted:
        if id in by_id and by_id[id]["cell_type"] != kind:
            found.append(f"{id} is not a {kind} cell")
        elif id in by_id and words not in source(by_id[id]):
            found.append(f"{id} does not contain {words!r}")
    for cell in cells:
        found += [f"{cell['id']}: {fault}" for fault in _cell_faults(cell)]
    answers = re.compile(rf"answer_{number}_\d")
    for cell in cells:
        if (
            cell["cell_type"] == "code"
            and not cell["id"].startswith(("stub-", "check-"))
            and answers.search(source(cell))
        ):
            found.append(f"{cell['id']} uses a reader's answer")
    if "questions" in by_id and source(by_id["questions"]).count("<details>") != 3:
        found.append("questions: there are not three answers in <details>")
    return found


def _cell_faults(cell: dict[str, Any]) -> list[str]:
    text, found = source(cell), []
    if cell["cell_type"] == "code":
        if cell["outputs"] or cell["execution_count"] is not None:
            found.append("an output or a count is stored")
        return found
    if any(not alt.strip() for alt in re.findall(r"!\[([^\]]*)\]\(", text)):
        found.append("an image has no alt text")
    if re.search(r"<img(?![^>]*\balt=\"[^\"]+\")", text):
        found.append("an <img> has no alt text")
    if len(COMMENT.findall(text)) != len(NUMBER.findall(text)):
        found.append("a source comment does not follow a number, or is not of the form <!-- =file path format -->")
    try:
        if fill(text) != text:
            found.append("a number differs from the stored one: run make figures")
    except (KeyError, ValueError, OSError) as error:
        found.append(f"a number's source is not there: {error}")
    return found
