"""A race as one HTML page that opens offline: tables, curves, staleness, and who did what when."""

from __future__ import annotations

import html
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from . import picture
from .compare import Comparison
from .race import Race
from .result import Result

WIDTH = 10.4  # inches
KINDS = dict(zip(("forward", "backward", "write", "put"), zip(picture.COLOURS, ("///", "", "", ""))))

MARKS = {"write": 0.37, "put": -0.37}  # how far from the middle of a lane they are drawn

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --line: #767676; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --paper: #111111; --line: #8a8a8a; } }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
       margin: 2rem auto; padding: 0 1rem; }
figure { margin: 1.5rem 0; } figure svg { display: block; max-width: 100%; height: auto; }
figcaption { font-size: .85rem; margin-top: .3rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
table { font-size: .85rem; }
thead th { vertical-align: bottom; white-space: normal; max-width: 7.5rem; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--line); text-align: right; }
td, tbody th { white-space: nowrap; }
th:first-child { text-align: left; }
"""


def _figure(columns: int, width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.subplots(1, columns)
    return figure


def curves(comparison: Comparison) -> str:
    """Accuracy against samples and against seconds."""
    figure = _figure(2, WIDTH, 3.8)
    for axes, x in zip(figure.axes, ("samples", "seconds")):
        comparison.plot(x, axes)
        axes.legend().remove()  # one for both, above
    figure.axes[1].set_ylabel("")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
    ends = [f"{name} {sum(r.score for r in runs) / len(runs):.1%}" for name, runs in comparison.results.items() if runs]
    return picture.render(
        figure, f"{comparison.title}. Accuracy against samples and against seconds. At the end: {', '.join(ends)}"
    )


def staleness(comparison: Comparison) -> str:
    """How stale the writes of each method were, first seed."""
    runs = {name: results[0] for name, results in comparison.results.items() if results and results[0].trace.on}
    figure = _figure(1, 0.6 * WIDTH, 3.2)
    axes = figure.axes[0]
    for k, (name, run) in enumerate(runs.items()):
        histogram = run.staleness()
        total = sum(histogram.values())
        taus = range(max(histogram, default=0) + 1)
        colour, marker, dash = picture.STYLES[k % len(picture.STYLES)]
        shares = [histogram[tau] / total for tau in taus]
        axes.plot(list(taus), shares, color=colour, marker=marker, linestyle=dash, label=name)
    axes.set_xlabel("staleness τ (writes to the layer between read and write)")
    axes.set_ylabel("share of writes")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    figure.legend(loc="outside right upper")
    means = ", ".join(f"{name} {run.trace.mean_staleness():.2f}" for name, run in runs.items())
    return picture.render(figure, f"{comparison.title}. Staleness of the writes; mean: {means}")


def timeline(run: Result, name: str, batches: float = 4.0) -> str:
    """What each thread did during some batches in the middle of the run: forward, backward, write, put."""
    events = run.trace.events()
    if not events:
        return ""
    span = batches * run.workers * run.seconds / max(1, run.samples / run.settings["batch_size"])
    first, last = events[0].start, max(event.end for event in events)
    middle = max(first, min((first + last) / 2, last - span))
    shown = [event for event in events if middle <= event.start < middle + span]
    figure = _figure(1, WIDTH, 1.0 + 0.4 * run.threads)
    axes = figure.axes[0]
    for kind, (colour, hatch) in KINDS.items():
        own = [event for event in shown if event.kind == kind]
        rows, starts = [event.program for event in own], [event.start - middle for event in own]
        if own and kind in MARKS:  # they take next to no time: a mark above or below the lane
            axes.scatter(starts, [row + MARKS[kind] for row in rows], s=30, marker="|", color=colour, label=kind)
        elif own:
            widths = [event.end - event.start for event in own]
            axes.barh(rows, widths, left=starts, height=0.5, color=colour, hatch=hatch, label=kind, linewidth=0)
    axes.set_yticks(range(run.threads), [f"{p.group} {p.index}" for p in run.trace.programs])
    axes.set(ylim=(run.threads - 0.4, -0.6), xlim=(0, span), xlabel=run.unit)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
    order = [kind for kind in KINDS if kind in handles]
    axes.legend([handles[kind] for kind in order], order, ncols=4, loc="lower right", bbox_to_anchor=(1, 1),
                borderaxespad=0.2, markerscale=1.5)  # fmt: skip
    axes.set_title(name)
    counts = ", ".join(f"{sum(e.kind == kind for e in shown)} {kind}" for kind in KINDS)
    return picture.render(
        figure, f"Timeline of {name}, {run.threads} threads over {span:.3g} {run.unit}: {counts} events"
    )


def page(race: Race) -> str:
    """The whole page."""
    arguments = ", ".join(f"{key} {value}" for key, value in race.arguments.items() if value is not None)
    parts = [
        "<h1>Race: sync SGD, Hogwild!, PD-ASGD and LayUp</h1>",
        f"<p>{html.escape(arguments)}.</p>",
        *(f"<p>{html.escape(note)}</p>" for note in race.notes),
    ]
    for comparison in race.comparisons:
        if not any(comparison.results.values()):
            continue
        parts.append(f"<h2>{html.escape(comparison.title.rpartition(': ')[2].capitalize())}</h2>")
        parts.append(f'<div class="wide" tabindex="0">{comparison.table()._repr_html_()}</div>')
        parts.append(f"<figure>{curves(comparison)}<figcaption>Mean over seeds, range as a band.</figcaption></figure>")
        parts.append(
            f"<figure>{staleness(comparison)}<figcaption>First seed, all layers together.</figcaption></figure>"
        )
        lanes = "".join(timeline(runs[0], name) for name, runs in comparison.results.items() if runs)
        words = "Four batches a worker, from the middle of the run, first seed; each has a time axis of its own."
        parts.append(f"<figure>{lanes}<figcaption>{words}</figcaption></figure>")
    body = "\n".join(parts)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>minilayup race</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n'


def write(race: Race, path: Path) -> Path:
    """Write `page` to a file; fonts stay text, so a browser finds and reads it."""
    import matplotlib

    with matplotlib.rc_context(picture.STYLE):
        path.write_text(page(race), encoding="utf-8")
    return path
