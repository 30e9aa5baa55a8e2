"""Lesson 07: what decoupling does, what writing layer by layer does, and what both do together, at equal threads.

All numbers are stored measurements on the virtual clock, ``data/results/lesson07.json``; the figure chooses among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import SubFigure

from .. import picture
from ..course.lesson import stored
from ..table import Table
from .controls import Choice, Number
from .figure import Data, Figure, Prediction

CORNERS = {  # in the stored results, and in words: (coupled or decoupled) x (block or layer)
    "hogwild_block": "Hogwild!, block",
    "hogwild_layer": "Hogwild!, layer",
    "dasgd": "D-ASGD, block",
    "pdasgd": "PD-ASGD, layer",
}
AXES = {"samples": "samples", "updates": "updates", "seconds": "virtual seconds"}


class Ablation(Figure):
    """Curves, speed-up, staleness, memory and critical learning rate of the four corners."""

    title = "Decoupled or not, block or layer"
    finding = (
        "At equal threads decoupling makes nothing faster; writing each layer as soon as its gradient is ready is what "
        "lets many threads keep a larger learning rate."
    )
    size = (7.2, 5.4)

    def __init__(self) -> None:
        self._stored = stored("lesson07")
        super().__init__(
            {
                "threads": Choice("Threads", ["3", "12"], "12"),
                "weights": Choice("Weights of the backward pass", ["live", "stashed"], "live"),
                "x": Choice("Horizontal axis", list(AXES), "seconds"),
            },
            Prediction(
                "Twelve threads each: PD-ASGD has 4 forward and 8 backward threads, Hogwild! has 12 that do both. How "
                "many times as many samples a second as Hogwild! does PD-ASGD train?",
                Number("PD-ASGD trains", 0.5, 4.0, 0.05, 2.0, "times as many"),
                {"threads": "12", "weights": "live"},
                lambda data: round(data["speed_up"][3] / data["speed_up"][0] / 0.05) * 0.05,
            ),
        )

    def model(self, *, threads: str, weights: str, x: str) -> Data:
        """The four corners' stored numbers; curves as mean, lowest and highest of three seeds on a common axis."""
        found, curves = self._stored["threads"][f"t{threads}"], self._stored["curves"]
        names = [name + ("_stashed" if weights == "stashed" else "") for name in CORNERS]
        rows = [found[name] for name in names]
        copies = rows[0]["in_flight_max"] if weights == "stashed" else 0
        return {
            "names": list(CORNERS.values()),
            "threads": int(threads),
            "weights": weights,
            "x": x,
            "speed_up": [row["speed_up"] for row in rows],
            "staleness": [row["staleness"] for row in rows],
            "memory": [row["activation_kB"] + copies * self._stored["activation"]["weights_kB"] for row in rows],
            "rate": [row["rate"] for row in rows],
            "rate_std": [row["std"] for row in rows],
            "rates": [row["rates"] for row in rows],
            "curves": [_band(curves[f"t{threads}"][name], x) for name in names],
            "one": _band(curves["one"], x),
            "lr": curves["lr"],
        }

    def draw(self, canvas: SubFigure) -> None:
        """Above: the curves and the critical rates.  Below: speed-up, staleness, memory."""
        self._axes = canvas.add_axes((0.08, 0.58, 0.42, 0.35))
        rate = canvas.add_axes((0.72, 0.58, 0.26, 0.35))
        below = [canvas.add_axes((left, 0.1, 0.2, 0.3)) for left in (0.19, 0.47, 0.75)]
        self._axes.set(ylabel="accuracy, %", ylim=(0, 85))
        self._means = [picture.line(self._axes, k, marker="") for k in range(5)]
        self._edges = [
            [picture.line(self._axes, k, marker="", linewidth=0.6) for _ in ("lowest", "highest")] for k in range(5)
        ]
        self._ends = [self._axes.plot([], [], color=picture.COLOURS[k], marker=picture.MARKERS[k])[0] for k in range(5)]
        self._alone = self._axes.text(0, 0, "one thread", va="top", ha="right")
        self._panels = [rate, *below]
        self._bars = [[picture.Bars(axes, k) for k in range(4)] for axes in self._panels]
        self._words: list[list[Any]] = [[axes.text(0, 0, "", va="center") for _ in range(4)] for axes in self._panels]
        self._error = [rate.plot([], [], color=picture.INK, linewidth=1.5)[0] for _ in range(4)]
        labels = list(CORNERS.values())
        for axes in self._panels:
            axes.set(ylim=(3.6, -0.6), yticks=[], xticks=[])  # the values are written beside the bars
        for axes in (rate, below[0]):
            axes.set_yticks(range(4), labels)
            axes.tick_params(left=False)
        rate.set(title="Critical learning rate", xlabel="± spread of 8 seeds")
        below[0].set(title="Speed-up", xlabel="times one thread")
        below[1].set(title="Staleness τ", xlabel="writes, mean")
        below[2].set(title="Memory", xlabel="kB of batches in flight")

    def update(self, data: Data) -> None:
        """Move curves and bars."""
        self._axes.set_title(f"{data['threads']} threads, learning rate {data['lr']:g}")
        self._axes.set_xlabel(AXES[data["x"]])
        for k, curve in enumerate([*data["curves"], data["one"]]):
            percent = {key: 100 * np.asarray(curve[key]) for key in ("mean", "low", "high")}
            self._means[k].set_data(curve["x"], percent["mean"])
            self._ends[k].set_data(curve["x"][-1:], percent["mean"][-1:])
            for edge, key in zip(self._edges[k], ("low", "high")):
                edge.set_data(curve["x"], percent[key])
        # one thread takes many times longer: the picture ends where it is at the others' end
        right = 1.05 * max(curve["x"][-1] for curve in data["curves"])
        self._axes.set_xlim(0, right)
        self._ends[4].set_data([], [])
        alone = np.interp(0.98 * right, data["one"]["x"], data["one"]["low"])
        self._alone.set(position=(0.98 * right, 100 * alone - 9), visible=data["x"] == "seconds")
        shown = [data["rate"], data["speed_up"], data["staleness"], data["memory"]]
        for axes, bars, words, values, form in zip(
            self._panels, self._bars, self._words, shown, (".3f", ".1f", ".1f", ".0f")
        ):
            extra = [std if values is data["rate"] else 0.0 for std in data["rate_std"]]
            top = max(value + more for value, more in zip(values, extra))
            axes.set_xlim(0, 1.5 * top)
            for k, value in enumerate(values):
                bars[k].set([k], [0], [value])
                words[k].set(position=(value + extra[k] + 0.05 * top, k), text=f"{value:{form}}")
        for k, (value, std) in enumerate(zip(data["rate"], data["rate_std"])):
            self._error[k].set_data([value - std, value + std], [k, k])

    def read(self, data: Data) -> str:
        """Speed-up, and the critical rates."""
        speed, rates = data["speed_up"], data["rate"]
        return (
            f"{data['threads']} threads, {data['weights']} weights, accuracy against {AXES[data['x']]}: coupled "
            f"threads are {speed[0]:.1f} times as fast as one, decoupled ones {speed[3]:.1f} times. The largest rate "
            f"that still trains is {rates[0]:.3f} (coupled) and {rates[2]:.3f} (decoupled) with block writing, "
            f"{rates[1]:.3f} and {rates[3]:.3f} layer by layer."
        )

    def table(self) -> Table:
        """One row a corner."""
        data = self.data()
        rows = [
            [name, f"{speed:.2f}", f"{tau:.2f}", f"{memory:.0f}", f"{rate:.4f} ± {std:.4f}", f"{curve['mean'][-1]:.1%}"]
            for name, speed, tau, memory, rate, std, curve in zip(
                *(data[k] for k in ("names", "speed_up", "staleness", "memory", "rate", "rate_std", "curves"))
            )
        ]
        columns = ["method", "speed-up", "staleness", "kB in flight", "critical rate", f"accuracy at {data['lr']:g}"]
        notes = ["Virtual clock. Speed-up, staleness, accuracy: 3 seeds; critical rate: 8 seeds, ± standard deviation."]
        return Table(f"{data['threads']} threads, {data['weights']} weights", columns, rows, notes)


def _band(runs: list[dict[str, list[float]]], x: str) -> dict[str, list[float]]:
    """Mean, lowest and highest score of several runs on one axis, which ends where the first of them ends."""
    grid = np.linspace(0, min(run[x][-1] for run in runs), 21)
    scores = np.array([np.interp(grid, run[x], run["score"]) for run in runs])
    return {"x": grid.tolist(), **{k: getattr(scores, f)(0).tolist() for k, f in
            (("mean", "mean"), ("low", "min"), ("high", "max"))}}  # fmt: skip
