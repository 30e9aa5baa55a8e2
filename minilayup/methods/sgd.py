"""Plain stochastic gradient descent: one worker, one batch after the other."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import choose
from ..run import Run
from ..threads import Program
from .base import Method


@dataclass(frozen=True)
class SGD(Method):
    """``x -= lr opt(g(x))``, the method every other one is measured against.

    Args:
        update: "block" writes the whole model after the backward pass, as ``optimizer.step()``; "layer" writes each
            layer during it.  With one worker the bits are the same.
    """

    update: str = "block"

    def __post_init__(self) -> None:
        choose("update", self.update, ("layer", "block"))

    def programs(self, run: Run) -> list[Program]:
        x = run.replica()

        def worker() -> None:
            view = run.view(x, run.write, self.update)
            for batch in run.batches(0):
                loss = view.forward(batch)
                view.backward(loss)

        return [Program(0, worker)]
