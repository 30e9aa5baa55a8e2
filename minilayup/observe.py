"""What happens around each pass of a view: time passes, events are written, losses are checked.

`RealObserver` measures (and slows a worker down when asked to); `VirtualObserver` lets virtual time pass, by layer.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

from .threads import Clock, Program
from .trace import Trace
from .view import View


class Observer:
    """Told of everything a view does; events and counting are the same on both clocks.

    Attributes:
        by_layer: whether views are to report layer by layer; with the trace on they also note the versions they read.

    Args:
        slow: factor by which each program computes slower than it could.
        check: called with a view once its loss is known; raises if the loss is not finite.
        done: called with a view once its batch is written.
    """

    def __init__(
        self,
        clock: Clock,
        trace: Trace,
        slow: Sequence[float],
        check: Callable[[View], None],
        done: Callable[[View], None],
    ) -> None:
        self.clock, self.trace, self.slow, self.check, self.done = clock, trace, slow, check, done
        self.by_layer = trace.on

    def began(self, view: View, kind: str) -> None:
        """A "forward" or "backward" pass begins."""
        view.program = self.clock.program
        view.program.step = view.batch.index if view.batch else -1
        view.since = self.clock.now()

    def computed(self, view: View, kind: str, layer: int) -> None:
        """One layer's share of the pass is computed."""
        if self.trace.on:
            program, since, now = view.program, view.since, self.clock.now()
            view.since = now
            batch = view.batch.index if view.batch else -1
            read = view.read[layer]
            self.trace.record((program.worker, program.index, kind, layer, batch, read, read, since, now))

    def ended(self, view: View, kind: str) -> None:
        """The pass is complete."""
        if kind == "forward":
            self.check(view)
        else:
            self.done(view)


class RealObserver(Observer):
    """Real time.  A slow worker sleeps (factor - 1) times the processor time of each of its passes."""

    def __init__(
        self,
        clock: Clock,
        trace: Trace,
        slow: Sequence[float],
        check: Callable[[View], None],
        done: Callable[[View], None],
    ) -> None:
        super().__init__(clock, trace, slow, check, done)
        self._used = [0.0] * len(slow)
        self._overslept = [0.0] * len(slow)  # paid back in the next sleep

    def began(self, view: View, kind: str) -> None:
        super().began(view, kind)
        if self.slow[view.program.index] != 1:
            self._used[view.program.index] = time.thread_time()

    def ended(self, view: View, kind: str) -> None:
        program = view.program.index
        if self.slow[program] != 1:
            wanted = (self.slow[program] - 1) * (time.thread_time() - self._used[program]) - self._overslept[program]
            before = self.clock.now()
            self.clock.sleep(max(wanted, 0.0))
            self._overslept[program] = self.clock.now() - before - wanted
        super().ended(view, kind)


class VirtualObserver(Observer):
    """Virtual time: each layer's share of a pass takes its cost, times the jitter, times the program's slowness.

    Args:
        costs: virtual seconds of one batch, layer by layer, for "forward" and "backward".
        jitter: sigma of the log-normal factor on each time.
        per: whether the factor is drawn for each "layer" or once for each pass of a "batch".
        randoms: a source for each program.
    """

    def __init__(
        self,
        clock: Clock,
        trace: Trace,
        slow: Sequence[float],
        check: Callable[[View], None],
        done: Callable[[View], None],
        costs: dict[str, list[float]],
        jitter: float,
        per: str,
        randoms: Sequence[random.Random],
    ) -> None:
        super().__init__(clock, trace, slow, check, done)
        self.by_layer = True  # layer by layer, also with the trace off: time passes there
        self._costs, self._jitter, self._per_layer, self._randoms = costs, jitter, per == "layer", randoms
        self._factor = [1.0] * len(slow)

    def began(self, view: View, kind: str) -> None:
        super().began(view, kind)
        program: Program = view.program
        jitter = 1.0 if self._per_layer else self._draw(program)
        self._factor[program.index] = jitter * self.slow[program.index] / view.micro_batches

    def computed(self, view: View, kind: str, layer: int) -> None:
        program: Program = view.program
        seconds = self._costs[kind][layer] * self._factor[program.index]
        if self._per_layer:
            seconds *= self._draw(program)
        self.clock.sleep(seconds)
        super().computed(view, kind, layer)

    def _draw(self, program: Program) -> float:
        return jitter(self._randoms[program.index], self._jitter)


def source(program: int, seed: int) -> random.Random:
    """Where a program's jitter on the virtual clock is drawn from."""
    return random.Random(f"program {program} of seed {seed}")


def jitter(source: random.Random, sigma: float) -> float:
    """A log-normal factor on the time of a pass; 1 for sigma = 0, without a draw."""
    return math.exp(sigma * source.gauss(0, 1)) if sigma else 1.0
