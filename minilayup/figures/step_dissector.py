"""Lesson 01: one measured step of SGD, layer by layer, and the bytes that its backward pass frees as it goes.

The steps are stored ones, or the reader's own, from `measured_step.measure_step`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import SubFigure

from .. import picture
from ..course import stored
from ..table import Table
from .controls import Choice, Number
from .figure import Data, Figure, Prediction

PHASES = ("forward", "backward", "update")


class StepDissector(Figure):
    """One measured step: the layers' shares of forward, backward and update, and the live activations below.

    Args:
        own: steps that you have measured with `measure_step`, shown beside the stored ones; the last one at first, and
            it is what the prediction asks for.
    """

    title = "One step of SGD, dissected"
    finding = "How long backward takes depends on the model: not always 2 times forward. It frees memory as it goes."
    size = (7.2, 5.6)

    def __init__(self, *own: dict[str, Any]) -> None:
        measured: list[dict[str, Any]] = stored("lesson01")["steps"]
        self._steps = [*own, *measured]  # one's own first: it stands for a stored one of the same name
        self._names: list[str] = list(dict.fromkeys(step["model"] for step in [*measured, *own]))
        batches = [str(size) for size in sorted({step["batch"] for step in self._steps})]
        first: dict[str, Any] = own[-1] if own else {"model": "CNN, strided", "batch": 64}
        about = first["model"] if own else "CNN, max-pool"
        net = f"“{about}” makes" if own else "A convolutional network with max-pooling makes"
        asked = f"{net} one step on a batch of {first['batch']}, on {_cores(first.get('threads', 1))}"
        super().__init__(
            {
                "model": Choice("Model", self._names, first["model"]),
                "batch": Choice("Batch", batches, str(first["batch"])),
                "moment": Number("Moment", 0, 100, 1, 60, "% of the step"),
            },
            Prediction(
                f"{asked}. How long does its backward pass take, in forward passes?",
                Number("Backward takes", 0.0, 4.0, 0.1, 2.0, "times forward"),
                {"model": about, "batch": str(first["batch"])},
                lambda data: round(data["beta"], 1),
            ),
        )

    def model(self, *, model: str, batch: str, moment: float) -> Data:
        """The step of this model whose batch is nearest to the one asked for, and what is going on at the moment."""
        of = [self._at(name, int(batch)) for name in self._names]
        step = of[self._names.index(model)]
        end = step["update"][0][1]
        now = moment / 100 * end
        phase, layer = next(
            (
                (phase, i)
                for phase in PHASES
                for i, (start, stop) in enumerate(step[phase])
                if start <= now <= stop and stop > start
            ),
            ("update", 0),
        )
        at = int(np.searchsorted(step["live"]["ms"], now, side="right")) - 1
        sizes = step["live"]["bytes"]
        peak = int(np.argmax(sizes))
        return {
            **{key: step[key] for key in ("model", "batch", "layers", "beta", "beta_low", "beta_high", "counted")},
            "spans": {phase: step[phase] for phase in PHASES},
            "ms": {phase: max(e for _, e in step[phase]) - min(s for s, _ in step[phase]) for phase in PHASES},
            "live_ms": step["live"]["ms"],
            "live_bytes": sizes,
            "peak": sizes[peak],
            "peak_ms": step["live"]["ms"][peak],
            "now": now,
            "now_bytes": sizes[at],
            "doing": [phase, f"{layer} ({step['layers'][layer]})"],
            "end": end,
            "all": [[other["beta"], other["beta_low"], other["beta_high"], other["counted"]] for other in of],
        }

    def _at(self, model: str, batch: int) -> dict[str, Any]:
        return min((s for s in self._steps if s["model"] == model), key=lambda s: abs(int(s["batch"]) - batch))

    def draw(self, canvas: SubFigure) -> None:
        """Bars above, live activations in the middle, all models' β below."""
        models = self._names
        grid = {"left": 0.27, "right": 0.97, "top": 0.94, "bottom": 0.08, "hspace": 0.72}
        top, middle, bottom = canvas.subplots(3, 1, height_ratios=[2.2, 1.2, 1.1], gridspec_kw=grid)
        self._axes = top, middle, bottom
        self._bars = {phase: picture.Bars(top, k, height=0.7) for k, phase in enumerate(PHASES)}
        self._totals = {phase: top.text(0, 0, "", ha="center", va="top") for phase in PHASES[:2]}
        self._update_words = top.text(1, 1.03, "", ha="right", va="bottom", transform=top.transAxes)
        top.tick_params(left=False, bottom=False, labelbottom=False)
        top.spines["bottom"].set_visible(False)
        middle.set(xlabel="milliseconds")
        middle.locator_params(nbins=5)
        middle.locator_params("y", nbins=3)
        self._live = picture.line(middle, 3, marker="", linestyle="-", drawstyle="steps-post", linewidth=2)
        self._peak = middle.plot([], [], "v", color=picture.COLOURS[1], markersize=8)[0]
        self._peak_words = middle.text(0, 0, "", va="center")
        self._cursors = [axes.axvline(0, color=picture.INK, linestyle=":", linewidth=1.4) for axes in (top, middle)]
        self._now = middle.plot([], [], "o", color=picture.INK, markersize=6)[0]
        bottom.axvline(2, color=picture.COLOURS[4], linestyle="--")
        bottom.set(ylim=(len(models) - 0.5, -0.5), title="β = backward ÷ forward:  ● measured  ◇ counted operations")
        bottom.set_yticks(range(len(models)), map(_short, models))
        self._spread = bottom.plot([], [], "-", color=picture.COLOURS[0], linewidth=3)[0]
        self._counted, self._others, self._chosen = (
            bottom.plot([], [], marker, color=picture.COLOURS[k], markersize=size, markerfacecolor=fill)[0]
            for marker, k, size, fill in (("D", 3, 6, "none"), ("o", 0, 6, None), ("o", 0, 10, None))
        )
        self._values = [bottom.text(0, k, "", va="center") for k in range(len(models))]

    def update(self, data: Data) -> None:
        """Move the artists."""
        top, middle, bottom = self._axes
        rows, end = len(data["layers"]), data["end"]
        for phase in PHASES:
            spans = data["spans"][phase]
            begins, ends = [s for s, _ in spans], [e for _, e in spans]
            self._bars[phase].set(range(rows + 1), [*begins, min(begins)], [*ends, max(ends)])  # the last: all together
            if phase in self._totals:
                at = (min(begins) + max(ends)) / 2
                self._totals[phase].set(position=(at, rows + 0.5), text=f"{phase} {data['ms'][phase]:.3g} ms")
        self._update_words.set_text(f"update {data['ms']['update']:.2g} ms")
        names = [_short(f"{i} · {name}") for i, name in enumerate(data["layers"])]
        top.set(xlim=(0, end), ylim=(rows + 0.5, -0.5))
        top.set_yticks(range(rows + 1), [*names, "all layers"])
        top.set_title(f"Backward takes {data['beta']:.2g} × as long as forward")

        unit, factor = ("MB", 1e6) if data["peak"] >= 1e6 else ("kB", 1e3)
        sizes = [size / factor for size in data["live_bytes"]]
        peak, now = data["peak"] / factor, data["now_bytes"] / factor
        self._live.set_data([*data["live_ms"], end], [*sizes, sizes[-1]])
        self._peak.set_data([data["peak_ms"]], [peak * 1.1])
        self._peak_words.set(position=(data["peak_ms"] + 0.02 * end, peak * 1.15), text=f"peak {peak:.3g} {unit}")
        self._now.set_data([data["now"]], [now])
        middle.set(xlim=(0, end), ylim=(0, 1.3 * peak), ylabel=unit)
        middle.set_title(f"Live activations: {now:.3g} {unit} at the dotted line")
        for cursor in self._cursors:
            cursor.set_xdata([data["now"], data["now"]])

        chosen = self._names.index(data["model"])
        for k, (beta, low, high, counted) in enumerate(data["all"]):
            right = counted < beta  # the side on which the diamond is not
            self._values[k].set(
                position=(high + 0.1 if right else low - 0.1, k), text=f"{beta:.2g}", ha="left" if right else "right",
                weight="bold" if k == chosen else "normal",
            )  # fmt: skip
        ranges = [(x, k) for k, row in enumerate(data["all"]) for x in (row[1], row[2], math.nan)]
        self._spread.set_data(*zip(*ranges))
        self._counted.set_data([row[3] for row in data["all"]], range(len(data["all"])))
        self._others.set_data([row[0] for row in data["all"]], range(len(data["all"])))
        self._chosen.set_data([data["all"][chosen][0]], [chosen])
        most = max(3.5, 1.2 * max(row[2] for row in data["all"]))
        ticks = range(0, int(most) + 1, 1 if most < 5 else 2)
        bottom.set_xlim(0, most)
        bottom.set_xticks(ticks, ["2, the rule of thumb" if tick == 2 else f"{tick}" for tick in ticks])

    def read(self, data: Data) -> str:
        """β, how sure it is, the peak, and the moment."""
        (phase, layer), ms = data["doing"], data["ms"]
        others = "; ".join(f"{n} {row[0]:.2g}" for n, row in zip(self._names, data["all"]) if n != data["model"])
        doing = phase if phase == "update" else f"{phase} pass"
        return (
            f"{data['model']}, batch {data['batch']}: forward takes {ms['forward']:.3g} ms and backward "
            f"{ms['backward']:.3g} ms, {data['beta']:.2f} times as long ({data['beta_low']:.2f} to "
            f"{data['beta_high']:.2f} over the rounds); counting operations says {data['counted']:.2f}. Live "
            f"activations peak at {_bytes(data['peak'])}, where backward begins; at {self.settings['moment']:g} % of "
            f"the step, in the {doing} of layer {layer}, they are {_bytes(data['now_bytes'])}. Backward over forward "
            f"of the others: {others}."
        )

    def table(self) -> Table:
        """Milliseconds of each layer."""
        data = self.data()
        rows = [
            [name, *(f"{stop - start:.3f}" for start, stop in shares)]
            for name, *shares in zip(data["layers"], *(data["spans"][phase] for phase in PHASES))
        ]
        rows.append(["all", *(f"{data['ms'][phase]:.3f}" for phase in PHASES)])
        title = f"One step of {data['model']}, batch {data['batch']}, milliseconds; β = {data['beta']:.2f}"
        return Table(title, ["layer", *PHASES], rows)


def _short(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:21]}…"


def _cores(threads: int) -> str:
    return "one core" if threads == 1 else f"{threads} cores"


def _bytes(size: float) -> str:
    return f"{size / 1e6:.3g} MB" if size >= 1e6 else f"{size / 1e3:.3g} kB"
