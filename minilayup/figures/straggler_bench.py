"""Lesson 02: workers that wait for each other at a barrier, and what the same workers would do without it.

The schedule is exact: it draws the same times from the same sources as the virtual clock does, without training
anything.  `lanes` finds the same times in the events of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import SubFigure

from .. import observe, picture, theory
from ..table import Table
from ..trace import Trace
from .controls import Number
from .figure import Data, Figure, Prediction

SECONDS = 36.0  # virtual
PASSES = (1.0, 2.0)  # virtual seconds of a forward and of a backward pass, as in `Virtual()`
MOST = 8  # workers
GAP = 0.12  # s, so that one outline does not touch the next

Spans = list[tuple[float, float]]  # (start, end) of each batch, in s


def times(worker: int, factor: float, jitter: float, seed: int = 0) -> Iterator[float]:
    """What the batches of a worker take, one after the other, in s: the draws of a run on the virtual clock."""
    own = observe.source(worker, seed)
    while True:
        yield sum(factor * cost * observe.jitter(own, jitter) for cost in PASSES)


def schedule(
    workers: int, factor: float, jitter: float, seconds: float = SECONDS, seed: int = 0, barrier: bool = True
) -> list[Spans]:
    """For each worker, when each of its batches begins and ends; all begin before ``seconds``, as in a run.

    Args:
        factor: how many times slower worker 0 is.
        jitter: sigma of the log-normal factor on the time of each pass.
        barrier: whether a batch begins only when all workers have finished the one before.
    """
    sources = [times(worker, 1.0 if worker else factor, jitter, seed) for worker in range(workers)]
    found: list[Spans] = [[] for _ in sources]
    begins = [0.0] * workers
    while min(begins) < seconds:
        for worker, source in enumerate(sources):
            if begins[worker] < seconds:
                found[worker].append((begins[worker], begins[worker] + next(source)))
                begins[worker] = found[worker][-1][1]
        if barrier:
            begins = [max(begins)] * workers
    return found


def lanes(trace: Trace) -> list[Spans]:
    """The same of a run: for each worker, the start and the end of each batch that it computed."""
    found: dict[int, dict[int, tuple[float, float]]] = {}
    for event in trace.events():
        if event.kind in ("forward", "backward"):
            own = found.setdefault(event.worker, {})
            own[event.batch] = (own.get(event.batch, event[7:])[0], event.end)
    return [sorted(found[worker].values()) for worker in sorted(found)]


class StragglerBench(Figure):
    """Lanes of work and waiting with a barrier, outlines of what is done without one, batches and updates counted."""

    title = "Straggler bench: workers at a barrier"
    finding = (
        "Workers that meet at a barrier make one update a round, of a batch that is as many times bigger as there are "
        "workers, and a round takes as long as the slowest of them; so they never make more updates than one worker "
        "alone."
    )
    size = (7.2, 5.2)

    def __init__(self) -> None:
        super().__init__(
            {
                "factor": Number("Worker 0 is slower", 1, 6, 1, 4, "times"),
                "workers": Number("Workers", 2, MOST, 1, 4),
                "jitter": Number("Jitter, σ of a pass's time", 0, 0.5, 0.1, 0),
            },
            Prediction(
                "A batch takes 3 virtual seconds, so one worker alone makes 12 updates in 36 s. Four workers train "
                "synchronously, each on batches of that size, and worker 0 is 4 times slower than the others. How many "
                "updates do the four make together in 36 s?",
                Number("Updates of four workers", 0, 48, 1, 39),
                {"factor": 4, "workers": 4, "jitter": 0},
                lambda data: data["updates"],
            ),
        )

    def model(self, *, factor: float, workers: float, jitter: float) -> Data:
        """When each batch begins and ends, with and without the barrier, and what is done in 36 virtual seconds."""
        n = int(workers)
        work, free = (schedule(n, factor, jitter, barrier=barrier) for barrier in (True, False))
        barriers = [max(ends) for ends in zip(*([end for _, end in spans] for spans in work))]
        waits = [[(end, meets) for (_, end), meets in zip(spans, barriers)] for spans in work]
        waited = sum(min(SECONDS, b) - min(SECONDS, a) for spans in waits for a, b in spans)
        updates = done(barriers)
        data: Data = {
            "workers": n, "factor": factor, "jitter": jitter, "work": work, "waits": waits, "free": free,
            "barriers": barriers,
            "updates": updates,
            "batches": n * updates,  # a batch counts when it has been written, at the barrier
            "free_each": [done([end for _, end in spans]) for spans in free],
            "alone": done([end for _, end in free[1]]),  # worker 1 is not slowed
            "waiting": waited / (n * SECONDS),
        }  # fmt: skip
        data["free_batches"] = sum(data["free_each"])
        data["theory"] = list(theory.straggler_speed(n, factor))
        return data

    # -- the picture -------------------------------------------------------------------------------------------------

    def draw(self, canvas: SubFigure) -> None:
        """Above a lane for each worker, below what all of them have done."""
        self._lanes = lanes = canvas.add_axes((0.125, 0.375, 0.79, 0.495))
        self._work = picture.Bars(lanes, 0, "computes", height=0.38)
        self._waits = picture.Bars(lanes, 1, "waits", height=0.1)
        self._free = picture.Bars(lanes, 4, "would compute if nobody waited", height=0.26, hollow=True)
        self._barriers = lanes.vlines([], 0, 1, color=picture.INK, linewidth=1.8, label="barrier: all write one update")
        lanes.set(xlim=(0, SECONDS), xlabel="virtual s")
        lanes.set_xticks(range(0, int(SECONDS) + 1, 6))
        lanes.tick_params(axis="y", length=0)
        self._marks = [lanes.text(0, 0, "", ha="center", va="bottom", fontsize=9) for _ in range(20)]
        beside: dict[str, Any] = {"va": "center", "fontsize": 9, "clip_on": False}
        self._counts = [[lanes.text(SECONDS + 0.5, 0, "", **beside) for _ in range(2)] for _ in range(MOST)]
        self._head = lanes.text(SECONDS + 3.4, 0, "batches\ndone", ha="right", va="bottom", fontsize=9)
        canvas.legend(
            handles=lanes.get_legend_handles_labels()[0], loc="upper left", bbox_to_anchor=(0.02, 1.0), ncols=4,
            fontsize=9, handlelength=1.6, columnspacing=1.4, borderpad=0.2,
        )  # fmt: skip
        self._sums = []
        for left, width, what in ((0.2, 0.33, "Batches done"), (0.6, 0.33, "Updates made")):
            axes = canvas.add_axes((left, 0.05, width, 0.175))
            axes.set(ylim=(2.6, -0.6))
            axes.set_xticks([])
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.set_title(what)
            bars = [picture.Bars(axes, 2), picture.Bars(axes, 0), picture.Bars(axes, 4, hollow=True)]
            self._sums.append((axes, bars, [axes.text(0, k, "", va="center", fontsize=9) for k in range(3)]))
        self._sums[1][0].set_yticks([])

    def update(self, data: Data) -> None:
        """Move everything."""
        n, barriers, updates = data["workers"], data["barriers"], data["updates"]
        rows = [k for k in range(n) for _ in barriers]
        spans = [span for own in data["work"] for span in own]
        self._work.set([row - 0.2 for row in rows], *zip(*spans))
        waits = [(row - 0.2, a, b) for row, (a, b) in zip(rows, (w for own in data["waits"] for w in own)) if b > a]
        self._waits.set(*(zip(*waits) if waits else ((), (), ())))
        free = [(k + 0.2, a + GAP, b - GAP) for k, own in enumerate(data["free"]) for a, b in own]
        self._free.set(*zip(*free))
        bottom, top = max(n, 3) - 0.5, -0.55
        self._lanes.set_ylim(bottom, top)
        self._barriers.set_segments([[(t, n - 0.55), (t, top)] for t in barriers[:updates]])
        for k, mark in enumerate(self._marks):
            mark.set_visible(k < updates)
            if k < updates:
                mark.set(position=(barriers[k], top - 0.02), text=f"update {k + 1}" if k == 0 else f"{k + 1}")
        self._head.set_y(top - 0.02)
        for k, (with_it, without) in enumerate(self._counts):
            for text, y, value in ((with_it, k - 0.2, updates), (without, k + 0.2, data["free_each"][min(k, n - 1)])):
                text.set(y=y, text=f"{value}", visible=k < n)
        slow = "" if data["factor"] == 1 else f"\n{data['factor']:g}× slower"
        self._lanes.set_yticks(range(n), [f"worker 0{slow}", *(f"worker {k}" for k in range(1, n))])

        batches = [data["alone"], data["batches"], data["free_batches"]]
        made = [data["alone"], updates, data["free_batches"]]
        sizes = ["1 batch", f"{n} batches", "1 batch"]
        widest = max(batches)
        for (axes, bars, texts), values in zip(self._sums, (batches, made)):
            axes.set_xlim(0, 1.5 * widest)
            for k, (bar, text, value) in enumerate(zip(bars, texts, values)):
                bar.set([k], [0], [value])
                of = f", each of {sizes[k]}" if values is made else ""
                text.set(position=(value + 0.02 * widest, k), text=f"{value}{of}")
        self._sums[0][0].set_yticks(range(3), ["one worker alone", f"{n} with the barrier", f"{n} without it"])

    # -- the words ---------------------------------------------------------------------------------------------------

    def read(self, data: Data) -> str:
        """Updates and batches, with and without the barrier, and the time that is spent waiting."""
        n, updates, batches = data["workers"], data["updates"], data["free_batches"]
        slow = "all equally fast" if data["factor"] == 1 else f"worker 0 being {data['factor']:g} times slower"
        link = " but for" if data["factor"] == 1 else " and with"
        jitter = f"{link} a jitter of {data['jitter']:g}" if data["jitter"] else ""
        return (
            f"In {SECONDS:g} virtual s, {n} workers, {slow}{jitter}, make {counted(updates, 'update')} of {n} batches "
            f"with the barrier, and wait for {data['waiting']:.0%} of their time; without it the same workers make "
            f"{counted(batches, 'update')} of 1 batch. One worker alone makes {data['alone']}."
        )

    def table(self) -> Table:
        """A row for each worker: its batches, with and without the barrier, and how long it waits."""
        data = self.data()
        rows = []
        for k, (waits, free) in enumerate(zip(data["waits"], data["free_each"])):
            waited = sum(min(SECONDS, b) - min(SECONDS, a) for a, b in waits)
            rows.append([f"worker {k}", str(data["updates"]), f"{waited:.1f}", str(free)])
        total = [
            f"{data['workers']} workers",
            str(data["batches"]),
            f"{data['workers'] * SECONDS * data['waiting']:.1f}",
        ]
        rows.append([*total, str(data["free_batches"])])
        rows.append(["updates", str(data["updates"]), "", str(data["free_batches"])])
        title = (
            f"{SECONDS:g} virtual s, worker 0 slower {data['factor']:g} times, jitter {data['jitter']:g}, batches that "
            "are done"
        )
        return Table(title, ["", "with the barrier", "s waiting", "without it"], rows)


def done(ends: list[float]) -> int:
    """How many of these times lie within the virtual seconds that are shown."""
    return sum(end <= SECONDS + 1e-9 for end in ends)


def counted(number: int, what: str) -> str:
    """Such as "1 update" or "3 updates"."""
    return f"{number} {what}{'s' * (number != 1)}"
