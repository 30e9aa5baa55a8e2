"""A table that prints as text and shows as HTML in a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A table that prints as text and shows as HTML in a notebook."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows)]

        def line(cells: Sequence[str]) -> str:
            first, *others = (c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths)))
            return "  ".join([first, *others])

        return "\n".join([self.title, "", line(self.columns), line(["-" * w for w in widths]), *map(line, self.rows),
                          *(["", *self.notes] if self.notes else [])])  # fmt: skip

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in self.columns)
        body = ""
        for first, *others in self.rows:
            cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in others)
            body += f'<tr><th scope="row">{html.escape(first)}</th>{cells}</tr>\n'
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
