"""PD-ASGD: forward and backward passes in different threads, each layer written as soon as its gradient exists."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import choose, positive_int
from ..queues import Queue
from ..run import Run
from ..threads import Program
from ..view import View
from .base import Method


@dataclass(frozen=True)
class PDASGD(Method):
    """Partially decoupled asynchronous SGD (Fokam, Nazeer et al. 2025, arXiv 2410.05985, versions 1 to 3).

    Forward programs compute losses with the newest weights and hand them on; backward programs take them and write
    layer by layer, without locks.  The views in the pool bound what is in flight, hence staleness and memory.  The
    paper's text was not available; the algorithm is recovered from its abstracts, reviews and rebuttal, and the queue's
    length, which they do not give, is ours.

    Args:
        forward, backward: programs of each kind; the ratio is F forward : B backward.  A backward pass takes about
            twice as long, so 1:2 keeps all three busy.
        slack: waiting places between them: the pool holds forward + backward + slack views.
        weights: "live": the backward pass uses the newest weights with the forward pass's activations (the paper);
            "stashed": the weights of its own forward pass.
        update: "layer" (the paper) or "block": the D-ASGD ablation, the whole model written after the backward pass.

    As workers, for ``slow=``: the forward programs come first (0 … forward-1), then the backward programs; or name the
    group, "forward" or "backward".
    """

    forward: int = 1
    backward: int = 2
    slack: int = 1
    weights: str = "live"
    update: str = "layer"

    def __post_init__(self) -> None:
        positive_int("forward", self.forward)
        positive_int("backward", self.backward)
        positive_int("slack", self.slack, at_least=0)
        choose("weights", self.weights, ("live", "stashed"))
        choose("update", self.update, ("layer", "block"))

    @property
    def threads(self) -> int:
        return self.forward + self.backward

    def slowable(self) -> set[int | str]:
        return {*range(self.threads), "forward", "backward"}

    def programs(self, run: Run) -> list[Program]:
        x = run.replica()
        free: Queue[View] = run.clock.queue()
        ready: Queue[tuple[View, Tensor]] = run.clock.queue(producers=self.forward)
        for _ in range(self.forward + self.backward + self.slack):
            free.put(run.view(x, run.write, self.update, self.weights))

        def forward() -> None:
            for batch in run.batches(0):
                view = free.get()
                ready.put((view, view.forward(batch)))
            ready.close()

        def backward() -> None:
            for view, loss in ready:
                view.backward(loss)
                free.put(view)

        programs = [Program(i, forward, "forward") for i in range(self.forward)]
        return programs + [Program(self.forward + i, backward, "backward") for i in range(self.backward)]
