"""Hogwild!: several threads, one replica, no locks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..errors import choose, positive_int
from ..run import Run
from ..threads import Program
from .base import Method


@dataclass(frozen=True)
class Hogwild(Method):
    """Every worker reads the shared weights, computes a gradient, and writes it, while the others do the same.

    Recht, Ré, Wright and Niu 2011, arXiv 1106.5730, algorithm 1.  The paper's analysis needs sparse gradients; deep
    networks' are dense, and staleness is what is left to study.

    Args:
        workers: threads over the one replica.
        update: "block" writes the whole model after the backward pass (the paper); "layer" each layer during it.
        weights: "live": the backward pass uses the weights as they are then; "stashed": as its forward pass read them.
    """

    workers: int = 2
    update: str = "block"
    weights: str = "live"

    def __post_init__(self) -> None:
        positive_int("workers", self.workers)
        choose("update", self.update, ("layer", "block"))
        choose("weights", self.weights, ("live", "stashed"))

    def programs(self, run: Run) -> list[Program]:
        x = run.replica()

        def worker(i: int) -> None:
            view = run.view(x, run.write, self.update, self.weights)
            for batch in run.batches(i):
                loss = view.forward(batch)
                view.backward(loss)

        return [Program(i, partial(worker, i)) for i in range(self.workers)]
