"""How much a run may train: so many samples, so many seconds, until a target is reached."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

from .errors import ArgumentError, number, positive_int
from .threads import Clock


@dataclass(frozen=True)
class Batch:
    """One batch of a run.

    index: its number in the run, from 0.  samples: how many samples were taken before it (for schedules; the same for
    all workers of a synchronous round).  data: what the task's loss takes.
    """

    index: int
    samples: int
    data: Any


class Budget:
    """Counts batches out, until the first of the given limits is reached.

    A run takes whole batches: ``samples`` is rounded up to them (to whole rounds for methods with a barrier).

    Args:
        samples, seconds, target: at least one of them; ``target`` is an accuracy between 0 and 1 (a loss for tasks
            without an accuracy), reached when an evaluation says so.
    """

    def __init__(self, samples: int | None, seconds: float | None, target: float | None, batch_size: int) -> None:
        if samples is None and seconds is None and target is None:
            raise ArgumentError("nothing says when to end: give samples=, seconds= or target=")
        if samples is not None:
            positive_int("samples", samples)
        if seconds is not None:
            number("seconds", seconds, 0, open_low=True)
        if target is not None:
            number("target", target, 0, open_low=True)
        self.samples, self.seconds, self.target, self.batch_size = samples, seconds, target, batch_size
        self.closed = False
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, clock: Clock, batches: int = 1) -> int | None:
        """The number of the next batch (of the first of ``batches``), or None when the budget is spent.

        A program that never waits for anything learns here that the run is stopped.
        """
        clock.check()
        with self._lock:
            spent = self._taken * self.batch_size >= (math.inf if self.samples is None else self.samples)
            if self.closed or spent or clock.now() >= (math.inf if self.seconds is None else self.seconds):
                return None
            self._taken += batches
            return self._taken - batches

    def close(self) -> None:
        """The target is reached: nobody gets another batch."""
        self.closed = True
