"""Lesson 03: the reader is the scheduler and lets two threads take their steps, until an update is lost."""

from __future__ import annotations

import math
from statistics import median
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import FixedLocator, NullLocator

from .. import picture
from ..course.lesson import stored
from ..errors import choose
from ..table import Table
from .controls import Choice, Moves, Number
from .figure import Data, Figure, Prediction

START, ETA = 64.0, 0.25  # the shared number, and the learning rate; the loss is w²/2, so the gradient is w
STEPS = ("read", "compute", "write")
WRITES = ("add in place", "store a copy")
MOST = 18  # moves: three updates of each thread
FLOOR = 1e-7  # the lowest share that the picture shows


class Step(NamedTuple):
    """One micro-step of one thread, and how things are after it.

    update: which update it belongs to, such as "A1".  version: writes that the shared number has taken.  read: the
    version that this update has read.  staleness: of a write, -1 for other steps.  kept: the updates that w contains.
    """

    thread: str
    kind: str
    update: str
    w: float
    version: int
    read: int
    staleness: int
    kept: frozenset[str]


def interleave(moves: str, write: str) -> list[Step]:
    """Threads A and B share one number w; each letter of ``moves`` is the next micro-step of that thread.

    Args:
        moves: such as "ABABAB".
        write: "add in place": w becomes w - ETA * gradient.  "store a copy": w becomes what was read - ETA * gradient.
    """
    choose("write", write, WRITES)
    w, version, kept = START, 0, frozenset[str]()
    taken = {"A": 0, "B": 0}
    own: dict[str, Any] = {}  # of each thread: what it has read, the version of that, and the updates in it
    steps = []
    for thread in moves:
        kind = STEPS[taken[thread] % 3]
        update = f"{thread}{taken[thread] // 3 + 1}"
        taken[thread] += 1
        staleness = -1
        if kind == "read":
            own[thread] = w, version, kept
        copy, read, kept_then = own[thread]
        if kind == "write":
            staleness = version - read
            base, before = (w, kept) if write == "add in place" else (copy, kept_then)
            w, version, kept = base - ETA * copy, version + 1, before | {update}
        steps.append(Step(thread, kind, update, w, version, read, staleness, kept))
    return steps


class Scheduler(Figure):
    """Two threads and one number: which updates are stale, which are lost; and how often it happens in fact."""

    title = "You are the scheduler"
    finding = "Lost writes are possible but rare; stale ones are common."
    size = (7.2, 4.6)

    def __init__(self) -> None:
        super().__init__(
            {
                "write": Choice("Each thread writes by", WRITES, WRITES[0]),
                "moves": Moves("Moves", {"A": "Thread A: next step", "B": "Thread B: next step"}, "ABABAB", MOST),
            },
            Prediction(
                "Threads A and B take turns, one step each (read, compute, write), until each has made three updates. "
                "Both write in place: w.add_(−η·g), without a lock. How many of the six updates are missing from w?",
                Number("Missing", 0, 6, 1, 3, "updates"),
                {"write": WRITES[0], "moves": "AB" * 9},
                lambda data: data["lost"],
            ),
        )
        self._measured = measured()

    def model(self, *, write: str, moves: str) -> Data:
        """What the moves lead to, beside what was measured."""
        steps = interleave(moves, write)
        writes = [step for step in steps if step.kind == "write"]
        kept = steps[-1].kept if steps else frozenset()
        return {
            "thread": [step.thread for step in steps],
            "kind": [step.kind for step in steps],
            "update": [step.update for step in steps],
            "w": [step.w for step in steps],
            "read": [step.read for step in steps],
            "staleness": [step.staleness for step in steps],
            "written": len(writes),
            "stale": sum(step.staleness > 0 for step in writes),
            "lost": len(writes) - len(kept),
            "lost_updates": [step.update for step in writes if step.update not in kept],
            "final": steps[-1].w if steps else START,
            "in_turn": START * (1 - ETA) ** len(writes),
            **self._measured,
        }

    def draw(self, canvas: SubFigure) -> None:
        """Both threads' lanes, the number below them, and the measured shares at the side."""
        grid = canvas.add_gridspec(
            2, 2, width_ratios=[1.5, 1], height_ratios=[1.45, 1], left=0.06, right=0.975, bottom=0.115, top=0.93,
            wspace=0.25, hspace=0.3,
        )  # fmt: skip
        lanes, values, shares = (canvas.add_subplot(place) for place in (grid[0, 0], grid[1, 0], grid[:, 1]))
        self._draw_lanes(lanes)
        self._draw_values(values)
        self._draw_shares(shares)

    def _draw_lanes(self, axes: Axes) -> None:
        """A window from read to write for each update, and dotted lines from each write into the other lane."""
        axes.set(xlim=(0.3, MOST + 0.7), ylim=(-1.75, 1.75))
        axes.axis("off")
        for row, thread in enumerate("BA"):
            axes.text(-0.2, row, thread, ha="right", va="center")
        self._lanes = axes
        self._reach = [axes.plot([], [], ":", color=picture.COLOURS[k], linewidth=1.5)[0] for k in (0, 1)]
        self._windows = [picture.Bars(axes, k, height=0.44, hollow=True) for k in (0, 1)]
        self._marks = {
            (thread, kind): axes.plot([], [], marker, color=picture.COLOURS[k], markersize=size)[0]
            for k, thread in enumerate("AB")
            for kind, marker, size in (("read", "o", 6), ("compute", ".", 4), ("write", "s", 7))
        }
        self._crosses = axes.plot([], [], "x", color=picture.INK, markersize=14, markeredgewidth=2)[0]
        self._notes = [axes.text(0, 0, "", ha="center", va="center", fontsize=9) for _ in range(MOST)]
        for k, words in enumerate(("● reads version v", "∙ computes", "■ writes, staleness τ", "✕ lost")):
            axes.text(0.3 + 9 * (k % 2), -1.15 - 0.45 * (k // 2), words, fontsize=9)

    def _draw_values(self, axes: Axes) -> None:
        """w after each step, beside what it would be had the same updates come in turn."""
        axes.set(xlim=(0.3, MOST + 0.7), ylim=(0, 88), xlabel="steps, in the order you chose", yticks=[0, 32, 64])
        axes.set_title("The shared number w", y=0.98)
        axes.xaxis.set_major_locator(FixedLocator([1, 6, 12, 18]))
        self._in_turn = axes.plot([], [], color=picture.COLOURS[4], linestyle="--", drawstyle="steps-post")[0]
        self._w = axes.plot([], [], color=picture.COLOURS[2], drawstyle="steps-post", linewidth=2)[0]
        self._dots = [axes.plot([], [], "s", color=picture.COLOURS[k], markersize=6)[0] for k in (0, 1)]
        self._values = [axes.text(0, 0, "", fontsize=9) for _ in range(MOST // 3)]
        axes.text(MOST + 0.7, 76, "dashed: one update after the other", ha="right", fontsize=9)

    def _draw_shares(self, axes: Axes) -> None:
        """What was measured, each run a dot; it does not depend on the moves."""
        found = self._measured
        axes.set(xscale="log", yscale="log", xlim=(0.4, 1e7), ylim=(FLOOR / 2, 20), xlabel="numbers in the tensor")
        axes.set_title("Often stale, hardly ever lost")
        axes.set_yticks([FLOOR, 1e-6, 1e-4, 1e-2, 1], ["none", "10⁻⁴ %", "0.01 %", "1 %", "100 %"])
        axes.set_xticks([1, 1e3, 1e6], ["1", "1,000", "1,000,000"])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
        axes.plot(found["sizes"], found["predicted"], color=picture.COLOURS[4], linestyle="--")
        for k, sizes, runs in (
            (0, found["sizes"], found["added"]),
            (1, [1], [found["counted"]]),
            (2, found["weights"], found["stale_runs"]),
            (3, found["weights"], found["lost_runs"]),
        ):
            look: dict[str, Any] = {"color": picture.COLOURS[k], "marker": picture.MARKERS[k], "linestyle": "none"}
            dots = [(size, max(FLOOR, share)) for size, shares in zip(sizes, runs) for share in shares]
            axes.plot(*zip(*dots), **look, markersize=2.5)
            axes.plot(sizes, [max(FLOOR, median(shares)) for shares in runs], **look, markersize=7)
        for x, y, words in (
            (1e7, 2.5, "▲ stale in training"),
            (2.2, 0.8 * median(found["counted"]), "■ lost: counter,\nstored copies"),
            (1.5, 1.6 * found["predicted"][0], "add_, predicted"),
            (1.5, 1.6e-5, "● lost: add_ only"),
            (1.6e4, 2.5 * FLOOR, "lost in training ◆"),
        ):
            axes.text(x, y, words, ha="right" if x > 1e3 else "left", fontsize=9)

    def update(self, data: Data) -> None:
        """Set the marks."""
        threads, kinds, count = data["thread"], data["kind"], len(data["thread"])
        for (thread, kind), marks in self._marks.items():
            at = [x for x in range(count) if (threads[x], kinds[x]) == (thread, kind)]
            marks.set_data([x + 1 for x in at], ["BA".index(thread)] * len(at))
        for k, thread in enumerate("AB"):
            own = [x + 1 for x in range(count) if threads[x] == thread]
            starts = own[::3]
            closes = [own[min(i + 2, len(own) - 1)] for i in range(0, len(own), 3)]
            self._windows[k].set([1 - k] * len(starts), [x - 0.4 for x in starts], [x + 0.4 for x in closes])
        lost = [x for x in range(count) if kinds[x] == "write" and data["update"][x] in data["lost_updates"]]
        self._crosses.set_data([x + 1 for x in lost], ["BA".index(threads[x]) for x in lost])
        for x, note in enumerate(self._notes):
            words, height = "", 0.0
            if x < count and kinds[x] != "compute":
                words = f"v{data['read'][x]}" if kinds[x] == "read" else f"τ{data['staleness'][x]}"
                height = 1.45 if threads[x] == "A" else -0.45
            stale = x < count and data["staleness"][x] > 0
            note.set(position=(x + 1, height), text=words, fontweight="bold" if stale else "normal")
        for k, thread in enumerate("AB"):
            at = [x + 1 for x in range(count) if (threads[x], kinds[x]) == (thread, "write")]
            ends = [1.22, -0.22] if thread == "A" else [-0.22, 1.22]
            self._reach[k].set_data(
                [place for x in at for place in (x, x, math.nan)], [end for _ in at for end in (*ends, math.nan)]
            )
        self._lanes.set_title(f"{data['written']} writes: {data['stale']} stale, {data['lost']} lost")

        writes = [x for x in range(count) if kinds[x] == "write"]
        ends = [*range(count + 1), MOST + 0.7]
        self._w.set_data(ends, [START, *data["w"], data["final"]])
        turns = [START * (1 - ETA) ** sum(x < t for x in writes) for t in range(count + 1)]
        self._in_turn.set_data(ends, [*turns, turns[-1]])
        for k, thread in enumerate("AB"):
            at = [x for x in writes if threads[x] == thread]
            self._dots[k].set_data([x + 1 for x in at], [data["w"][x] for x in at])
        for k, label in enumerate(self._values):
            words, place = "", (0.0, 0.0)
            if k < len(writes):
                x = writes[k]
                words, place = (
                    f"{data['w'][x]:.2g}",
                    (x + 1.3, data["w"][x] + (4 if data["w"][x] >= turns[x + 1] or data["w"][x] < 20 else -12)),
                )
            label.set(position=place, text=words)

    def read(self, data: Data) -> str:
        """What the moves have done to w, and how often it happens in fact."""
        found = self._measured
        stale, lost = ([median(runs) for runs in found[key]] for key in ("stale_runs", "lost_runs"))
        return (
            f"{data['written']} updates are written ({self.controls['write'].value}); stale {data['stale']}, lost "
            f"{data['lost']}; w is {data['final']:.4g}, and had they come one after the other {data['in_turn']:.4g}. "
            f"Measured in training with two threads: {min(stale):.0%} to {max(stale):.0%} of the writes are stale, "
            f"{max(lost):.5%} of the updates are lost (the larger median)."
        )

    def table(self) -> Table:
        """The steps, a row for each."""
        data = self.data()
        rows = [
            [
                str(x + 1), thread, kind, update, f"v{read}" if kind == "read" else "",
                str(staleness) if kind == "write" else "", f"{w:.4g}",
            ]
            for x, (thread, kind, update, read, staleness, w) in enumerate(
                zip(*(data[key] for key in ("thread", "kind", "update", "read", "staleness", "w")))
            )
        ]  # fmt: skip
        start = [["0", "", "", "", "", "", f"{START:g}"]]
        columns = ["step", "thread", "does", "update", "reads", "staleness", "w after it"]
        return Table(f"Each update: w − {ETA:g} × gradient; {self.controls['write'].value}", columns, start + rows)


def measured() -> Data:
    """What the lesson has measured, as shares: lost additions by the tensor's size, lost counts, training."""
    found = stored("lesson03")
    training = [found["threads"][model] for model in ("cnn", "mlp")]
    return {
        "sizes": [row["size"] for row in found["add"]],
        "added": [row["lost"]["runs"] for row in found["add"]],
        "predicted": [row["predicted"] for row in found["add"]],
        "counted": found["counter"]["with_a_call"]["runs"],
        "weights": [runs["weights"] for runs in training],
        "stale_runs": [runs["stale"]["runs"] for runs in training],
        "lost_runs": [runs["lost"]["runs"] for runs in training],
    }
