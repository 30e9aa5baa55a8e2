"""Lesson 05: when each layer's gradient is ready, when it is written, and when a second thread reads it.

The schedule is exact.  Two threads repeat the same step: a forward pass of 1 s, a backward pass of ``beta`` s, both
divided equally among the layers.  Thread 1 begins at 0, thread 2 begins ``offset`` later.  `ages` finds the same times
in the events of a run.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from statistics import fmean
from typing import Any

from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from .. import picture
from ..table import Table
from ..trace import Event, Trace
from .controls import Choice, Number
from .figure import Data, Figure, Prediction

HERE, MEAN = "at this offset", "mean over all offsets"
UPDATES = ("block", "layer")
GAP = 1.7  # rows between the two halves of the picture


def ages(trace: Trace, skip: int = 0) -> list[list[float]]:
    """Ages of the gradients in a run, layer by layer: seconds from "ready" to the next read by another program.

    Args:
        skip: leave out the gradients of batches with a lower number, while the programs are still in step.
    """
    ready = {(event.layer, event.batch): event.end for event in trace.events("backward")}
    reads: dict[tuple[int, int], list[Event]] = {}  # a forward event starts when its layer is read
    for event in trace.events("forward"):
        reads.setdefault((event.layer, event.program), []).append(event)
    found: list[list[float]] = [[] for _ in trace.layers]
    for write in trace.events("write"):
        seen = []
        for (layer, program), theirs in reads.items():
            if layer == write.layer and program != write.program and write.batch >= skip:
                at = bisect_left(theirs, write.version, key=lambda event: event.read)  # versions never fall
                seen += [event.start for event in theirs[at : at + 1]]
        if seen:
            found[write.layer].append(min(seen) - ready[write.layer, write.batch])
    return found


class UpdateWaterfall(Figure):
    """Block against layer-wise writing: for each layer, the wait for the write and the wait for the reader."""

    title = "Update waterfall: a second thread reads what the first one writes"
    finding = (
        "A layer that is written as soon as its gradient is ready keeps no gradient waiting and is read younger by "
        "another thread, the last layers most; a thread alone reads neither sooner nor later."
    )
    size = (7.2, 5.0)

    def __init__(self) -> None:
        super().__init__(
            {
                "offset": Number("Thread 2 begins later by", 0, 95, 5, 70, "% of a step"),
                "layers": Number("Layers", 2, 8, 1, 6),
                "beta": Number("β, backward over forward time", 0.5, 4, 0.5, 2),
                "ages": Choice("Ages", [HERE, MEAN], HERE),
            },
            Prediction(
                "Six layers, β = 2, a step of 3 s. Layer-wise writing writes a layer 0.83 s earlier than block "
                "writing, on average. A worker that trains alone reads the layers again in its next forward pass "
                "(as thread 2 does at an offset of 0 %). How much younger are the gradients that it then sees, on "
                "average over the layers, in s?",
                Number("Younger by", 0, 3, 0.05, 0.85, "s"),
                {"offset": 0},
                lambda data: round(fmean(data["saved"]), 9),
            ),
        )

    def model(self, *, offset: float, layers: float, beta: float, ages: str) -> Data:
        """When each layer, input side first, is ready, written and read, in s; all from closed forms."""
        count, step = int(layers), 1 + beta
        begins = offset / 100 * step
        ready = [1 + beta * (count - k) / count for k in range(count)]
        first = [begins + k / count for k in range(count)]  # thread 2's first read of each layer
        data: Data = {"step": step, "begins": begins, "ready": ready, "first": first, "ages": ages}
        for update in UPDATES:
            written = [step] * count if update == "block" else ready
            # the first read at or after the write: a read at the very moment of the write sees it
            read = [r + step * math.ceil((w - r) / step - 1e-9) for r, w in zip(first, written)]
            waits = [w - g for w, g in zip(written, ready)]
            age = [r - g for r, g in zip(read, ready)] if ages == HERE else [wait + step / 2 for wait in waits]
            data |= {f"{update}_written": written, f"{update}_read": read, f"{update}_waits": waits}
            data |= {f"{update}_age": age, f"{update}_alive": count if update == "block" else 1}
        data["saved"] = [max(0.0, b - a) for b, a in zip(data["block_age"], data["layer_age"])]
        return data

    # -- the picture -------------------------------------------------------------------------------------------------

    def draw(self, canvas: SubFigure) -> None:
        """Left the schedule, right the ages; block writing above, layer-wise writing below, a row for each layer."""
        grid = {"left": 0.1, "right": 0.98, "bottom": 0.11, "top": 0.87, "wspace": 0.1, "width_ratios": [1.25, 1]}
        self._left, self._right = left, right = canvas.subplots(1, 2, sharey=True, gridspec_kw=grid)
        self._forward = picture.Bars(left, 4, "thread 1: forward pass", hollow=True)
        self._backward = picture.Bars(left, 0, "thread 1: backward pass")
        self._waits = picture.Bars(left, 1, "gradient ready, waits for its write", height=0.34)
        self._until = picture.Bars(left, 2, "written, waits for thread 2", height=0.2)
        self._reads = left.plot([], [], "^", color=picture.INK, fillstyle="none", label="thread 2 reads, without it")[0]
        self._sees = left.plot(
            [], [], "^", color=picture.COLOURS[2], clip_on=False, label="thread 2 reads, first with it"
        )[0]
        self._age_waits = picture.Bars(right, 1)
        self._age_until = picture.Bars(right, 2)
        self._saved = picture.Bars(right, 4, hollow=True)
        left.set(xlabel="s, from the start of thread 1's step")
        for axes in (left, right):
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        left.tick_params(axis="y", length=0)
        right.tick_params(axis="y", length=0, labelleft=False)
        self._numbers = [right.text(0, 0, "", va="center", fontsize=9) for _ in range(16)]
        self._heads = [left.text(0, 0, "", fontweight="bold") for _ in UPDATES]
        self._means = [right.text(0, 0, "", fontweight="bold") for _ in UPDATES]
        canvas.legend(
            handles=left.get_legend_handles_labels()[0], loc="upper left", bbox_to_anchor=(0.02, 1.0), ncols=2,
            fontsize=9, handlelength=1.6, columnspacing=1.5, labelspacing=0.3, borderpad=0.2,
        )  # fmt: skip

    def update(self, data: Data) -> None:
        """Move everything."""
        count, step, ready = len(data["ready"]), data["step"], data["ready"]
        base = {"block": count + GAP, "layer": 0.0}  # the row of layer 1; the last layer is on top
        rows = [base[update] + k for update in UPDATES for k in range(count)]
        forward = [k / count for k in range(count)]
        self._forward.set(rows, forward * 2, [(k + 1) / count for k in range(count)] * 2)
        self._backward.set(rows, [g - (step - 1) / count for g in ready] * 2, ready * 2)
        written, read, age, waits = (
            [value for update in UPDATES for value in data[f"{update}_{key}"]]
            for key in ("written", "read", "age", "waits")
        )
        self._waits.set(rows, ready * 2, written)
        self._until.set(rows, written, read)
        self._sees.set_data(read, rows)
        every = [(t + k * step, row, sees) for t, row, sees in zip(data["first"] * 2, rows, read) for k in (-1, 0, 1)]
        before = [(t, row) for t, row, sees in every if 0 <= t < sees - step / 2]
        self._reads.set_data([t for t, _ in before], [row for _, row in before])

        self._age_waits.set(rows, [0] * len(rows), waits)
        self._age_until.set(rows, waits, age)
        self._saved.set(rows[count:], data["layer_age"], data["block_age"])
        saved = [0.0] * count + data["saved"]
        for k, words in enumerate(self._numbers):
            words.set_visible(k < len(rows))
            if k < len(rows):
                less = f"  −{saved[k]:.2f}" if saved[k] > 0 else ""
                words.set(position=(age[k] + saved[k] + 0.03 * step, rows[k]), text=f"{age[k]:.2f}{less}")
        for k, update in enumerate(UPDATES):
            row, alive = base[update] + count - 0.3, data[f"{update}_alive"]
            told = f"{alive} gradients kept until the end" if alive > 1 else "1 gradient kept at a time"
            self._heads[k].set(position=(0.04 * step, row), text=f"{update}: {told}")
            less = f" ({fmean(data['saved']):.2f} s saved)" if update == "layer" else ""
            mean = f"mean age {fmean(data[f'{update}_age']):.2f} s{less}"
            self._means[k].set(position=(0.06 * step, row), text=mean)
        ends = [base[update] + k for update in UPDATES for k in (0, count - 1)]
        self._left.set_yticks(ends, ["layer 1", f"layer {count}"] * 2)
        self._left.set(xlim=(0, 2 * step), ylim=(-0.7, 2 * count + GAP + 0.5))
        when = "" if data["ages"] == HERE else " over all offsets"
        self._right.set(xlim=(0, 2.75 * step), xlabel=f"age{when}: s from ready to read")

    # -- the words ---------------------------------------------------------------------------------------------------

    def read(self, data: Data) -> str:
        """How many layers are read a step younger at this offset, or what is saved on average."""
        count, step, saved = len(data["saved"]), data["step"], data["saved"]
        block, layer = fmean(data["block_age"]), fmean(data["layer_age"])
        means = f"the mean age is {block:.2f} s with block writing and {layer:.2f} s with layer-wise writing"
        if data["ages"] == MEAN:
            return (
                f"Over all offsets, layer-wise writing saves each layer the backward time that is left when its "
                f"gradient is ready: {saved[0]:.2f} s for layer 1, {saved[-1]:.2f} s for layer {count}; {means}."
            )
        younger = [k + 1 for k in range(count) if saved[k] > 0]
        if not younger:
            return f"At this offset thread 2 reads no layer while its gradient waits: nothing is saved, {means}."
        which = f"layer {younger[0]}" if len(younger) == 1 else f"layers {younger[0]} to {younger[-1]}"
        return (
            f"At this offset {which} of {count} {'is' if len(younger) == 1 else 'are'} read a whole step of {step:g} s "
            f"younger with layer-wise writing; {means}."
        )

    def table(self) -> Table:
        """A row for each layer, the last one first, as they are written."""
        data, columns = self.data(), ["layer", "gradient ready"]
        for update in UPDATES:
            columns += [f"{update}: written", "read", "age"]
        rows = []
        for k in reversed(range(len(data["ready"]))):
            cells: list[Any] = [data["ready"][k]]
            for update in UPDATES:
                cells += [data[f"{update}_{key}"][k] for key in ("written", "read", "age")]
            rows.append([str(k + 1), *(f"{value:.2f}" for value in cells), f"{data['saved'][k]:.2f}"])
        title = f"s; step {data['step']:g} s, thread 2 begins {data['begins']:.2f} s later; ages {data['ages']}"
        return Table(title, [*columns, "saved"], rows)
