"""Lesson 04: how large a learning rate may be when gradients come late, and what late gradients do to one weight.

`wave`, `swing_border` and `noise_border` are closed forms, like those in `minilayup.theory`.  The dots on the map are
measured; ``bench/lessons/lesson_04.py`` stores them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from .. import picture
from ..course.lesson import stored
from ..errors import ArgumentError, number, positive_int
from ..table import Table
from ..theory import delay_border, delayed_descent
from .controls import Number
from .figure import Data, Figure, Prediction

LONGEST = 16  # the largest delay on the map
LOW, HIGH = 0.02, 2.5  # η·λ on the map
SEEN = 2.6  # how far from 0 the weight is drawn


# -- closed forms ------------------------------------------------------------------------------------------------------


def wave(a: float, tau: int) -> tuple[float, bool]:
    """What ``theta_{t+1} = theta_t - a theta_{t-tau}`` does in the long run: (factor, whether it swings).

    The factor is what the distance from the minimum is multiplied by at each update: below 1 it settles.  It is the
    largest root of ``z^(tau+1) = z^tau - a``; where that root is not a positive number, the weight swings from side to
    side.
    """
    roots = np.roots([1.0, -1.0, *[0.0] * (tau - 1), a] if tau else [1.0, a - 1.0])
    largest = roots[np.argmax(np.abs(roots))]
    return float(abs(largest)), a > swing_border(tau)


def swing_border(tau: int) -> float:
    """The largest ``eta * lambda`` at which the delayed descent does not swing: ``tau^tau / (tau + 1)^(tau + 1)``."""
    return float(positive_int("tau", tau, at_least=0) ** tau / (tau + 1) ** (tau + 1))


def noise_border(tau: int) -> float:
    """`minilayup.theory.delay_border` if staleness were noise: if its error had the same size and a random sign.

    ``theta_{t+1} = theta_t - a (theta_t + s_t (theta_{t-tau} - theta_t))`` with ``s_t`` = +1 or -1 by the toss of a
    coin.  The mean square of theta settles if and only if a is below the root of ``a (3 - 2 (1 - a)^tau) = 2``.
    """
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * (3 - 2 * (1 - middle) ** tau) < 2 else (low, middle)
    return high


def noisy_descent(a: float, tau: int, steps: int, seed: int = 0) -> list[float]:
    """The trajectory of `noise_border`'s recursion from a constant past of 1: steps + 1 values."""
    coin, path = random.Random(seed), [1.0] * (tau + 1)
    for _ in range(steps):
        now, late = path[-1], path[-1 - tau]
        path.append(now - a * (now + coin.choice((-1, 1)) * (late - now)))
    return path[tau:]


# -- the figure --------------------------------------------------------------------------------------------------------


class StalenessLab(Figure):
    """The map of delay and learning rate with its border, and the trajectory of one weight at a point of the map.

    Args:
        own: dots of your own, (mean staleness, critical learning rate over that without staleness) each.
    """

    title = "What a late gradient costs"
    finding = (
        "Delay costs learning rate, along a known border: at a delay of 8 updates 9 % is left. "
        "Were staleness noise of the same size, about a third would be left, however long the delay."
    )
    size = (7.2, 3.9)

    def __init__(self, own: Sequence[tuple[float, float]] = ()) -> None:
        super().__init__(
            {
                "tau": Number("Delay τ", 0, LONGEST, 1, 8, "updates"),
                "a": Number("Learning rate × curvature, η·λ", 0.02, 2.2, 0.01, 0.3),
            },
            Prediction(
                "Without delay (τ = 0), gradient descent on a bowl settles up to some largest learning rate. Now each "
                "gradient is τ = 8 updates old when it is written. How large may the learning rate be, in per cent of "
                "that?",
                Number("Largest rate at τ = 8", 0, 100, 1, 60, "%"),
                {"tau": 8},
                lambda data: round(50 * data["border"]),
            ),
        )
        self._own = [_dot(k, dot) for k, dot in enumerate(own)]
        self._stored = stored("lesson04")["critical"].values()

    def model(self, *, tau: int, a: float) -> Data:
        """The border, the trajectory of one weight, and that of the same weight with noise in place of delay."""
        steps = 12 * tau + 24  # three of the border's swings, and more
        factor, swings = wave(a, tau)
        return {
            "tau": tau,
            "a": a,
            "border": delay_border(tau),
            "swing_border": swing_border(tau),
            "noise_border": noise_border(tau),
            "factor": factor,
            "swings": swings,
            "stable": a < delay_border(tau),
            "path": delayed_descent(a, tau, steps),
            "noisy": noisy_descent(a, tau, steps),
            "measured": [(row["staleness"], row["relative"]) for row in self._stored],
            "spread": [row["relative_std"] for row in self._stored],
            "own": self._own,
        }

    def draw(self, canvas: SubFigure) -> None:
        """The map on the left, the weight's trajectory on the right."""
        chart, path = canvas.subplots(
            1, 2, gridspec_kw={"left": 0.09, "right": 0.975, "bottom": 0.145, "top": 0.91, "wspace": 0.33},
            width_ratios=[1.3, 1],
        )  # fmt: skip
        self._draw_map(chart)
        path.axhline(0, color=picture.INK, linewidth=0.6)
        self._noisy = picture.line(path, 1, marker="", linewidth=1.3)
        self._late = picture.line(path, 0, marker="", linewidth=2.2)
        path.set(xlabel="update", ylim=(-SEEN, SEEN + 1.3), yticks=range(-2, 3))
        path.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        path.legend([self._late, self._noisy], ["gradient τ updates late", "fresh, with noise as large"], fontsize=9,
                    loc="upper left", borderpad=0, borderaxespad=0.2, handlelength=1.8)  # fmt: skip
        self._path = path

    def _draw_map(self, chart: Axes) -> None:
        taus = range(LONGEST + 1)
        for k, border in ((0, delay_border), (1, noise_border), (4, swing_border)):
            look: dict[str, Any] = {
                "linestyle": "-" if k == 0 else picture.DASHES[k],
                "linewidth": 2.2 if k == 0 else 1.3,
            }
            chart.plot(taus, [border(tau) for tau in taus], color=picture.COLOURS[k], **look)
        chart.text(8.9, 0.102, "border", fontsize=9, fontweight="bold")
        chart.text(5.2, 0.75, "border if staleness were noise", fontsize=9)
        chart.text(-0.4, 0.0225, "▲ measured: a perceptron\nwith 1 to 16 workers", fontsize=9)
        for x, y, words in ((9.6, 1.45, "diverges"), (9.6, 0.058, "settles, swinging"), (-0.4, 0.062, "settles")):
            chart.text(x, y, words, fontsize=9, fontstyle="italic")
        rows = list(self._stored)
        chart.plot([r["staleness"] for r in rows], [2 * r["relative"] for r in rows], picture.MARKERS[2],
                   color=picture.COLOURS[2], markersize=7, linestyle="none")  # fmt: skip
        for row in rows:  # with a thin line from the lowest to the highest of the seeds
            low, high = 2 * min(row["relatives"]), 2 * max(row["relatives"])
            chart.plot([row["staleness"]] * 2, [low, high], color=picture.COLOURS[2], linewidth=1.2)
            chart.text(row["staleness"] + 0.3, 2.15 * row["relative"], f"{row['workers']}", fontsize=9)
        if self._own:
            taus_, rates = zip(*self._own)
            chart.plot(taus_, [2 * rate for rate in rates], picture.MARKERS[3], color=picture.COLOURS[3], markersize=8,
                       linestyle="none")  # fmt: skip
            chart.text(taus_[-1] + 0.4, 2.1 * rates[-1], "yours", fontsize=9)
        (self._here,) = chart.plot([], [], "x", color=picture.INK, markersize=10, markeredgewidth=2.5)
        chart.set(title="Where the weight settles", xlabel="delay τ (updates)", ylabel="η·λ", yscale="log",
                  xlim=(-0.9, LONGEST + 0.7), ylim=(LOW, HIGH), xticks=range(0, LONGEST + 1, 4))  # fmt: skip
        chart.yaxis.labelpad = 0
        ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]
        chart.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        chart.minorticks_off()
        for share in (100, 50, 20, 10, 5, 2, 1):  # a second scale; as an axis of its own it would take 10 ms
            chart.text(LONGEST + 0.7, share / 50, f"– {share}", va="center")
        chart.text(LONGEST + 2.75, 0.224, "% of the largest at τ = 0", rotation=90, va="center")

    def update(self, data: Data) -> None:
        """Move the cross on the map, and the two trajectories, which end where they leave the picture."""
        self._here.set_data([data["tau"]], [data["a"]])
        for artist, values in ((self._late, data["path"]), (self._noisy, data["noisy"])):
            end = next((k + 1 for k, value in enumerate(values) if abs(value) > SEEN), len(values))
            artist.set_data(range(end), np.clip(values[:end], -SEEN, SEEN))
        self._path.set_xlim(0, len(data["path"]) - 1)
        self._path.set_title(f"Weight θ at ✕ {_does(data)}")

    def read(self, data: Data) -> str:
        """What the weight does, where the border is, and what noise would do."""
        limit, factor = data["border"], data["factor"]
        where = f"With a delay of {data['tau']} and η·λ = {data['a']:.2f} the weight {_does(data)}"
        told = f"{where}: each update multiplies its distance from the minimum by {factor:.3f}, in the long run."
        if data["tau"] == 0:
            return f"{told} The border is {limit:.2f}; without delay there is no staleness."
        return (
            f"{told} The border is {limit:.3f}, {limit / 2:.0%} of the one without delay; were staleness noise of the "
            f"same size, it would be {data['noise_border']:.2f}."
        )

    def table(self) -> Table:
        """The borders at eight delays, then the measured dots."""
        shown = sorted({0, 1, 2, 4, 6, 8, 12, LONGEST, int(self.controls["tau"].value)})
        rows = [
            [f"{tau}", f"{delay_border(tau):.3f}", f"{delay_border(tau) / 2:.1%}", f"{noise_border(tau):.2f}",
             f"{swing_border(tau):.3f}"]
            for tau in shown
        ]  # fmt: skip
        notes = [
            f"Measured: a perceptron with {row['workers']} worker{'s' * (row['workers'] > 1)} of Hogwild!, staleness "
            f"{row['staleness']:.2f}, has {row['relative']:.0%} of one worker's critical learning rate."
            for row in self._stored
        ]
        notes += [f"Your own: staleness {tau:.2f}, {rate:.0%}." for tau, rate in self._own]
        columns = ["τ", "border of η·λ", "share of τ = 0", "were staleness noise", "swings above"]
        return Table("The border, by delay", columns, rows, notes)


def _does(data: Data) -> str:
    """What the weight does, in words."""
    if not data["stable"]:
        return "diverges"
    return "settles, swinging" if data["swings"] else "settles"


def _dot(k: int, dot: tuple[float, float]) -> tuple[float, float]:
    """A reader's dot, if it can be drawn on the map."""
    if not isinstance(dot, tuple | list) or len(dot) != 2:
        raise ArgumentError(f"own[{k}]={dot!r} is not allowed: give (mean staleness, relative learning rate).")
    return (
        number(f"the staleness of own[{k}]", dot[0], 0, LONGEST),
        number(f"the relative learning rate of own[{k}]", dot[1], LOW / 2, HIGH / 2),
    )
