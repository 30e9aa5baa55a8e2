"""From matplotlib to inline SVG: colours that both themes can carry, real text, and a name for who cannot see it."""

from __future__ import annotations

import html
import io
import re
import threading
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

# Okabe-Ito colours that keep 3:1 against white and against the dark theme's background, each with a marker, a dash and
# a hatch of its own, so that none is told by its colour alone.  (Its yellow, orange and sky blue fail on white.)
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F"]
MARKERS = ["o", "s", "^", "D", "v"]
DASHES: list[Any] = ["-", "--", "-.", ":", (0, (5, 1))]
STYLES = list(zip(COLOURS, MARKERS, DASHES))
HATCHES = ["///", "", "|||", "\\\\\\", "xxx"]

DRAWING = (
    threading.RLock()
)  # matplotlib's settings are one for all threads, and a live run draws from a thread of its own

BACKGROUNDS = {"light": "#ffffff", "dark": "#111111"}  # behind an output in JupyterLab's two themes

INK = "#123456"  # stands for the page's text colour while matplotlib draws, and is replaced by currentColor
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "minilayup",  # the same picture is the same file
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titley": 1.0,  # always right above: looking for a better place takes a sixth of the drawing time
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "hatch.linewidth": 0.8,
}


def canvas(width: float = 7.2, height: float = 3.6) -> Canvas:
    """An empty picture, in inches; 7.2 fills a notebook's column, and its text is then 13 pixels high."""
    return Canvas(figsize=(width, height))


def render(figure: Canvas, label: str, prefix: str = "m", upper: float = 1.0) -> str:
    """The picture as inline SVG, named ``label``, in the page's text colour.

    Args:
        prefix: put before every id, so that two pictures on one page do not take each other's clip paths.
        upper: the share of its height that is shown, from the top.
    """
    buffer = io.StringIO()
    with DRAWING, matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{prefix}-", svg).replace(INK, "currentColor")
    svg = re.sub(r'(<svg [^>]*?)width="[\d.]+pt" height="[\d.]+pt"', r"\1", svg, count=1)
    svg = re.sub(
        r'viewBox="0 0 ([\d.]+) ([\d.]+)"', lambda m: f'viewBox="0 0 {m[1]} {float(m[2]) * upper:g}"', svg, count=1
    )
    width = figure.get_size_inches()[0] * 96
    named = html.escape(label, quote=True)
    look = f"display:block;width:100%;max-width:{width:.0f}px;height:auto"
    return svg.replace("<svg ", f'<svg role="img" aria-label="{named}" style="{look}" ', 1)


def alone(svg: str) -> str:
    """The same picture as a file of its own: dark ink on a white card, legible on pages of any colour."""
    box = re.search(r'viewBox="([\d. ]+)"', svg)
    if box is None:
        raise ValueError("this is no picture of `render`: it has no viewBox")
    _, _, width, height = box[1].split()
    card = f'<rect width="{width}" height="{height}" fill="{BACKGROUNDS["light"]}"/>'
    start = svg.index(">") + 1
    return svg[:start].replace("currentColor", "#1b1b1b") + card + svg[start:].replace("currentColor", "#1b1b1b") + "\n"


def line(axes: Axes, k: int, label: str = "", **options: Any) -> Line2D:
    """An empty line in the ``k``-th colour, marker and dash, to be filled by ``set_data``."""
    style = {"color": COLOURS[k], "marker": MARKERS[k], "linestyle": DASHES[k], "markersize": 5, "label": label}
    return axes.plot([], [], **{**style, **options})[0]


class Bars:
    """Horizontal bars in the ``k``-th colour and hatch, all of one kind, that can be moved: lanes of work and waiting.

    They are one artist however many there are, so drawing them again is fast.
    """

    def __init__(self, axes: Axes, k: int, label: str = "", height: float = 0.6, hollow: bool = False) -> None:
        """hollow: outlines only, for what did not happen (waiting, a ghost)."""
        look: dict[str, Any] = {"edgecolors": COLOURS[k], "linewidths": 1.0, "label": label}
        look |= {"facecolors": "none"} if hollow else {"facecolors": COLOURS[k]}
        if HATCHES[k] and not hollow:
            look |= {"hatch": HATCHES[k], "edgecolors": INK}
        self._bars = PolyCollection([], **look)
        self._height = height
        axes.add_collection(self._bars, autolim=False)

    def set(self, rows: Sequence[float], starts: Sequence[float], ends: Sequence[float]) -> None:
        """Bars from ``starts`` to ``ends`` in the middle of ``rows``."""
        half = self._height / 2
        self._bars.set_verts(
            [[(s, r - half), (s, r + half), (e, r + half), (e, r - half)] for r, s, e in zip(rows, starts, ends)]
        )


def contrast(colour: str, background: str) -> float:
    """WCAG 2 contrast ratio of two colours as "#rrggbb", from 1 to 21."""

    def luminance(text: str) -> float:
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    one, two = sorted((luminance(colour), luminance(background)), reverse=True)
    return (one + 0.05) / (two + 0.05)
