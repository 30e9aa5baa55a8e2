"""Lesson 00: three methods train at once on the virtual clock, and the reader slows one worker down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from matplotlib.figure import SubFigure

from .. import picture, rules, tasks
from ..course.lesson import small_task
from ..engine import Virtual, train
from ..methods import Hogwild, LayUp, Method, SyncSGD
from ..table import Table
from .controls import Number
from .figure import Data, Figure, Prediction

METHODS: list[Method] = [SyncSGD(4), Hogwild(4), LayUp(4)]
SECONDS = 60.0  # virtual; a worker's forward pass takes 1, its backward pass 2, so 20 batches at full speed
BATCH = 50


def race_task() -> tasks.Task:
    """The lessons' small network, and 1,000 test pictures, so that 30 races take a few seconds."""
    task = small_task()
    return replace(task, test=task.test.batch(torch.arange(1000)), name="Fashion-MNIST subset, small mlp")


class RaceInSmall(Figure):
    """Samples trained, and accuracy, in 60 virtual seconds on 4 workers, of which one is slower."""

    title = "A race in which you slow one worker down"
    finding = "One slow worker stops everyone, unless nobody waits."
    trains = True
    size = (7.2, 3.2)

    def __init__(self) -> None:
        super().__init__(
            {"factor": Number("Worker 0 is slower", 1, 10, 1, 4, "times")},
            Prediction(
                "Four workers train together for 60 virtual seconds, and worker 0 is 10 times slower than the others. "
                "In synchronous SGD all wait for each other before each update. How much of its work does it still "
                "do, in per cent of what it does with four equal workers?",
                Number("Synchronous SGD still does", 0, 100, 5, 75, "%"),
                {"factor": 10},
                lambda data: round(100 * data["kept"][0]),
            ),
        )
        self._task = race_task()
        self._equal: list[int] = []
        self._equal = self.model(factor=1)["samples"]
        self.prepare("factor")

    def model(self, *, factor: float) -> Data:
        """Train each method for 60 virtual seconds: samples, accuracy, and the share of the work that is left."""
        runs = [
            train(
                self._task, method, seconds=SECONDS - 0.5, batch_size=BATCH, rule=rules.SGD(lr=0.1),
                engine=Virtual(jitter=0), slow={0: factor}, trace=False, progress=False, evaluate_every=1_000_000,
            )
            for method in METHODS
        ]  # fmt: skip
        samples = [run.samples for run in runs]
        equal = self._equal or samples
        return {
            "methods": [method.name for method in METHODS],
            "samples": samples,
            "accuracy": [run.score for run in runs],
            "kept": [now / then for now, then in zip(samples, equal)],
        }

    def draw(self, canvas: SubFigure) -> None:
        """Two rows of bars: work done, accuracy reached."""
        left, right = canvas.subplots(1, 2, sharey=True, gridspec_kw={"left": 0.13, "right": 0.98, "bottom": 0.2})
        self._work = picture.Bars(left, 0)
        self._full = picture.Bars(left, 4, hollow=True)
        self._score = picture.Bars(right, 2)
        self._words: list[Any] = [[axes.text(0, 0, "", va="center") for _ in METHODS] for axes in (left, right)]
        self._left = left
        left.set(xlabel="samples; frame: with four equal workers", xlim=(0, 5000))
        right.set(title="Accuracy it leads to", xlabel="% of the test pictures", xlim=(0, 100), ylim=(2.6, -0.6))
        left.set_yticks(range(3), [method.name for method in METHODS])
        right.tick_params(left=False)

    def update(self, data: Data) -> None:
        """Move the bars."""
        rows = range(3)
        percent = [100 * value for value in data["accuracy"]]
        self._left.set_title(f"Work done, one worker {self.controls['factor'].value:g} times slower")
        self._work.set(rows, [0] * 3, data["samples"])
        self._full.set(rows, data["samples"], self._equal)
        self._score.set(rows, [0] * 3, percent)
        for k in rows:
            self._words[0][k].set(position=(4080, k), text=f"{data['kept'][k]:.0%}")
            self._words[1][k].set(position=(percent[k] + 2, k), text=f"{percent[k]:.0f} %")

    def read(self, data: Data) -> str:
        """The shares of work that are left."""
        parts = ", ".join(f"{name} {kept:.0%}" for name, kept in zip(data["methods"], data["kept"]))
        factor = self.controls["factor"].value
        return f"With one worker {factor:g} times slower, this much of the work is still done: {parts}."

    def table(self) -> Table:
        """Samples, share and accuracy, a row for each method."""
        data = self.data()
        rows = [
            [name, f"{samples:,}", f"{kept:.0%}", f"{score:.1%}"]
            for name, samples, kept, score in zip(*(data[k] for k in ("methods", "samples", "kept", "accuracy")))
        ]
        title = f"{SECONDS:g} virtual s, 4 threads, worker 0 slower {self.controls['factor'].value:g} times, one seed"
        return Table(title, ["method", "samples", "of equal workers'", "accuracy"], rows)
