"""Synchronous data-parallel SGD: N workers are one big batch at the slowest one's pace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..errors import positive_int
from ..hooks import Grads
from ..replica import Layer
from ..run import Run
from ..threads import Program
from ..view import View
from .base import Method


@dataclass(frozen=True)
class SyncSGD(Method):
    """Each worker computes a gradient on its own batch; all write the mean: ``x_i -= lr opt(1/n sum_j g_j)``.

    The replicas stay identical.  What DistributedDataParallel does (Li et al. 2020, arXiv 2006.15704), without its
    overlap of the all-reduce with the backward pass.
    """

    workers: int = 2

    def __post_init__(self) -> None:
        positive_int("workers", self.workers)

    def programs(self, run: Run) -> list[Program]:
        replicas = [run.replica(i) for i in range(self.workers)]

        def worker(i: int) -> None:
            g: dict[int, Grads] = {}

            def keep(view: View, layer: Layer, grads: Grads) -> None:
                g[layer.index] = grads

            view = run.view(replicas[i], keep)
            for batch in run.rounds(i):
                g.clear()
                loss = view.forward(batch)
                view.backward(loss)
                grads = [g.get(layer.index, [None] * len(layer.tensors)) for layer in replicas[i].layers]
                mean = iter(run.all_reduce(i, [grad for own in grads for grad in own]))
                for layer in replicas[i].layers:
                    run.write(view, layer, [next(mean) for _ in layer.tensors])

        return [Program(i, partial(worker, i)) for i in range(self.workers)]
