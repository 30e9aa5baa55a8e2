"""Evaluation that does not disturb the run: snapshots on the way, accuracy afterwards.

Whoever crosses a sample count copies the replicas, stamped with the clock; copies are evaluated when the run is over.
Where the copies would be large, or where the run is to end at a target, they are evaluated on the fly (the result says
so, and real seconds then include it).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .data import to_device
from .methods.base import Method
from .replica import Replica
from .result import Point, Result
from .run import Diverged, Run
from .tasks import Task
from .view import View

KEEP_AT_MOST = 2**30  # bytes of snapshots


@dataclass
class Snapshot:
    """Copies of all replicas at one moment: flat layers, buffers, and each replica's weight in the mean, by layer."""

    samples: int
    updates: int
    seconds: float
    loss: float
    layers: list[list[Tensor]]  # [replica][layer]
    buffers: list[list[Tensor]]  # [replica][buffer]
    weights: list[list[float]]  # [replica][layer], each layer's sum to 1


class Evaluator:
    """Takes the snapshots of one run and turns them into `Point`s.

    Args:
        every: samples between two evaluations.
        on_the_fly: evaluate at once.
    """

    def __init__(self, run: Run, every: int, on_the_fly: bool) -> None:
        self.run, self.every, self.on_the_fly = run, every, on_the_fly
        self.points: list[Point] = []
        self._snapshots: list[Snapshot] = []
        self._due = every
        self._losses = [0.0] * run.writers  # sum of the training losses, by program: one writer each
        self._batches = [0] * run.writers
        self._before = (0.0, 0)

    def note(self, view: View) -> None:
        """A view has computed its batch's loss (called by the observer).

        Raises: `Diverged` if it is not finite.
        """
        index = view.program.index
        self._losses[index] += view.value
        self._batches[index] += 1
        if not math.isfinite(view.value):
            raise Diverged(self._diagnosis(view))

    def trained(self) -> tuple[float, int]:
        """Sum of the training losses so far, and of how many batches."""
        return sum(self._losses), sum(self._batches)

    def _diagnosis(self, view: View) -> str:
        assert view.batch is not None
        lr = self.run.rule.lr * self.run.schedule(view.batch.samples)
        bad = [layer.name for layer in view.layers if not bool(torch.isfinite(layer.flat).all())]
        largest = max(float(layer.flat.abs().max()) for layer in view.layers)
        where = (
            f"the first layer with weights that are not finite is '{bad[0]}'. Try a smaller learning rate, a warm-up "
            "(rules.WarmUp) or fewer workers"
            if bad
            else f"all weights are finite, the largest is {largest:.2g}: if that is huge, try a smaller learning rate, "
            "else look at the loss and at this batch's data"
        )
        return f"the loss is {view.value} at {view.program}, batch {view.batch.index}, learning rate {lr:g}; {where}."

    def crossed(self) -> None:
        """Called after each batch: take a snapshot if a multiple of ``every`` samples has been crossed."""
        with self.run.counting:
            if self.run.samples < self._due:
                return
            self._due = (self.run.samples // self.every + 1) * self.every
        self.take()

    def take(self) -> None:
        """Keep the replicas as they are now, or evaluate them at once."""
        snapshot = self._snapshot()
        size = sum(layer.nbytes for replica in snapshot.layers for layer in replica)
        if not self.on_the_fly and size * (len(self._snapshots) + 1) <= KEEP_AT_MOST:
            self._snapshots.append(snapshot)
            return
        self.on_the_fly = True
        self.points.append(self._evaluate(snapshot))
        target, score = self.run.budget.target, self.points[-1].score
        if target is not None and (score >= target if self.run.task.accuracy else score <= target):
            self.run.budget.close()

    def _snapshot(self) -> Snapshot:
        run, replicas = self.run, self.run.replicas
        losses, batches = self.trained()
        new = batches - self._before[1]
        loss = (losses - self._before[0]) / new if new else math.nan
        self._before = losses, batches
        return Snapshot(
            run.samples,
            run.updates,
            run.clock.now() if run.updates else 0.0,
            loss,
            [[layer.flat.clone() for layer in replica.layers] for replica in replicas],
            [[buffer.clone() for buffer in replica.module.buffers()] for replica in replicas],
            self._weights(),
        )

    def _weights(self) -> list[list[float]]:
        """[replica][layer]: each replica's weight in the mean model; those of a layer sum to 1."""
        exchange, replicas = self.run.transport.exchange, self.run.replicas
        raw = [[exchange.weight(layer.index, r.worker) for layer in r.layers] for r in replicas]
        totals = [sum(column) for column in zip(*raw)]
        return [[weight / total for weight, total in zip(row, totals)] for row in raw]

    def _evaluate(self, snapshot: Snapshot) -> Point:
        replica, task = self._mean_model(snapshot), self.run.task
        score = score_worker0 = test_score(replica.module, task)
        distances = [
            sum(float((own[layer.index] - layer.flat).square().sum()) for own in snapshot.layers) / len(snapshot.layers)
            for layer in replica.layers
        ]
        norms = [max(float(layer.flat.square().sum()), 1e-30) for layer in replica.layers]
        if len(snapshot.layers) > 1:
            load(replica, snapshot.layers[0], snapshot.buffers[0])
            score_worker0 = test_score(replica.module, task)
        drift_layers = tuple(distance / norm for distance, norm in zip(distances, norms))
        at = (snapshot.samples, snapshot.updates, snapshot.seconds, snapshot.loss)
        return Point(*at, score, score_worker0, sum(distances) / sum(norms), drift_layers)

    def _mean_model(self, snapshot: Snapshot) -> Replica:
        first = self.run.replicas[0]
        replica = Replica(copy.deepcopy(first.module), layers=first.cut, device=first.layers[0].flat.device)
        load(replica, mean_layers(snapshot), mean_buffers(snapshot))
        return replica

    def result(self, method: Method, settings: dict[str, Any]) -> Result:
        """Evaluate what is left, and put the result together.

        Raises: `Diverged` if the mean model is not finite.
        """
        run, transport = self.run, self.run.transport
        last = self._snapshot()
        last.seconds = run.clock.ended
        self._snapshots.sort(key=lambda snapshot: snapshot.samples)  # two threads may have crossed close together
        done: list[Any] = [*self.points, *self._snapshots]
        if done[-1].samples == run.samples:  # the last crossing was the end
            last.loss = done[-1].loss
            (self._snapshots or self.points).pop()
        self.points += [self._evaluate(snapshot) for snapshot in [*self._snapshots, last]]
        self._snapshots = []
        model = self._mean_model(last)
        bad = [layer.name for layer in model.layers if not bool(torch.isfinite(layer.flat).all())]
        if bad:
            raise Diverged(f"weights of layer '{bad[0]}' are not finite at the end: try a smaller learning rate")
        return Result(
            method=str(method),
            task=run.task.name,
            threads=method.threads,
            workers=method.workers,
            unit=run.clock.unit,
            samples=run.samples,
            updates=run.updates,
            seconds=run.clock.ended,
            points=self.points,
            metric="accuracy" if run.task.accuracy else "loss",
            bytes_put=sum(transport.bytes) + sum(run.all_reduce.bytes),
            merges=sum(transport.merges),
            skipped=sum(transport.skipped),
            lost=sum(transport.lost),
            evaluated="on the fly" if self.on_the_fly else "afterwards",
            masses=self._weights(),
            settings=settings,
            model=model.module,
            trace=run.trace,
        )


def mean_layers(snapshot: Snapshot) -> list[Tensor]:
    """The mean model's layers, with the weights that the exchange rule conserves."""
    if len(snapshot.layers) == 1:
        return snapshot.layers[0]
    return [
        sum((w[index] * own[index] for w, own in zip(snapshot.weights[1:], snapshot.layers[1:])),
            snapshot.weights[0][index] * snapshot.layers[0][index])
        for index in range(len(snapshot.layers[0]))
    ]  # fmt: skip


def mean_buffers(snapshot: Snapshot) -> list[Tensor]:
    """The mean model's buffers (BatchNorm statistics): plain means; those of whole numbers are worker 0's."""
    columns = zip(*snapshot.buffers)
    return [torch.stack(c).mean(0) if c[0].is_floating_point() else c[0] for c in columns]


def load(replica: Replica, layers: list[Tensor], buffers: list[Tensor]) -> None:
    """Copy layers and buffers into a replica."""
    for layer, flat in zip(replica.layers, layers, strict=True):
        layer.flat.copy_(flat)
    for own, buffer in zip(replica.module.buffers(), buffers, strict=True):
        own.data.copy_(buffer)


@torch.no_grad()
def test_score(model: nn.Module, task: Task, chunk: int = 500) -> float:
    """Accuracy on the test set (the mean loss for tasks without an accuracy), in evaluation mode."""
    model.eval()
    measure = task.accuracy or task.loss
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    total, rows = 0.0, len(task.test)
    for start in range(0, rows, chunk):
        index = torch.arange(start, min(start + chunk, rows))
        total += len(index) * float(measure(model, to_device(task.test.batch(index), device)))
    model.train()
    return total / rows
