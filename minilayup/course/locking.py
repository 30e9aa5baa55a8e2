"""Where the answers to exercise 03.2 are tried: shared numbers, locks and workers on the virtual clock."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from ..clocks import VirtualClock
from ..threads import Clock, Deadlock, Program, ProgramError


class Lock:
    """A lock between programs: a queue with one token.  Who has taken the token holds the lock; the others wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = clock.queue()
        self._tokens.put("token")
        self.holder: Program | None = None
        self.waiting: list[Program] = []

    def take(self) -> None:
        """Wait until the lock is free, and hold it."""
        me = self._clock.program
        self.waiting.append(me)
        self._tokens.get()
        self.waiting.remove(me)
        self.holder = me

    def give(self) -> None:
        """Give it back."""
        if self.holder is not self._clock.program:
            raise RuntimeError("a lock was given back by a worker that does not hold it")
        self.holder = None
        self._tokens.put("token")


Update = Callable[..., Any]  # (i, j, w, locks, compute)
LINES = 20_000  # that a worker's updates may execute in one schedule; a right answer needs a few hundred


class Endless(RuntimeError):
    """An answer goes on and on."""


class Trial:
    """Workers that update shared numbers in pairs, with a given function, on the virtual clock.

    Args:
        update: the answer.
        pairs: of each worker, the pairs of numbers that it updates.
        seed: of the pauses between a worker's updates; None: no pauses.

    Attributes: what was seen.
        problem: "" or one of `lesson_03.HINTS`.  said: more about it.
        lost, stale: updates of one number that are missing; writes from old numbers.  made: updates of one number.
        seconds: virtual.
    """

    def __init__(self, update: Update, pairs: Sequence[Sequence[tuple[int, int]]], seed: int | None) -> None:
        self._update, self._seed = update, seed
        self._clock = VirtualClock()
        self._locks = [Lock(self._clock) for _ in range(4)]
        self._numbers = Numbers(self._clock)
        self.problem = self.said = ""
        programs = [Program(k, lambda k=k: self._work(k, pairs[k]), index=k) for k in range(len(pairs))]  # type: ignore[misc]
        try:
            self._clock.run(programs)
        except ProgramError as error:
            self._explain(error)
        self.seconds = self._clock.ended
        self.made = 2 * sum(map(len, pairs))
        self.lost = self.made + sum(self._numbers)
        self.stale = self._numbers.stale

    def _work(self, worker: int, pairs: Sequence[tuple[int, int]]) -> None:
        source = random.Random(f"worker {worker} of {self._seed}")
        calls = 0

        def compute(first: int, second: int) -> tuple[int, int]:
            """One virtual second of work, in which others go on; the new values."""
            nonlocal calls
            calls += 1
            self._numbers.begin(worker)
            self._clock.sleep(1.0)
            return first - 1, second - 1

        sys.settrace(_limited(LINES))
        try:
            for i, j in pairs:
                if self._seed is not None:
                    self._clock.sleep(source.random())
                calls = 0
                self._update(i, j, self._numbers, self._locks, compute)
                if calls != 1:
                    self._stop("no single computation", f"an update computes {calls} times instead of once")
                held = [k for k, lock in enumerate(self._locks) if lock.holder is self._clock.program]
                if held:
                    self._stop("a lock that is kept", f"after its update, worker {worker} still holds lock {held[0]}")
        finally:
            sys.settrace(None)

    def _stop(self, problem: str, said: str) -> None:
        self.problem, self.said = problem, said
        raise Endless(said)

    def _explain(self, error: ProgramError) -> None:
        if self.problem:
            return
        if isinstance(error.__cause__, Deadlock):
            waits = [(p.worker, k) for k, lock in enumerate(self._locks) for p in lock.waiting]
            self.problem = "deadlock"
            self.said = "; ".join(f"worker {worker} waits for lock {k}" for worker, k in sorted(waits))
        else:
            self.problem, self.said = "an error", f"{type(error.__cause__).__name__}: {error.__cause__}"


class Numbers(list[int]):
    """Four shared numbers that know, of each write, whether others have written since its worker's read."""

    def __init__(self, clock: Clock) -> None:
        super().__init__([0] * 4)
        self._clock = clock
        self._versions = [0] * 4
        self._reads: dict[tuple[int, int], int] = {}  # (worker, number): the version that was read last
        self._used: dict[tuple[int, int], int] = {}  # the same for what a worker computes with
        self.stale = 0

    def begin(self, worker: int) -> None:
        """The worker computes with what it has read."""
        for k in range(4):
            self._used[worker, k] = self._reads.pop((worker, k), self._versions[k])

    def __getitem__(self, k: Any) -> Any:
        number = range(4)[k]
        self._reads[self._clock.program.worker, number] = self._versions[number]
        return super().__getitem__(number)

    def __setitem__(self, k: Any, value: Any) -> None:
        number = range(4)[k]
        self.stale += self._versions[number] > self._used.get((self._clock.program.worker, number), 0)
        self._versions[number] += 1
        super().__setitem__(number, value)


def _limited(lines: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that lets so many lines be executed, so that an endless loop ends."""
    left = lines

    def watch(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Endless(f"more than {lines:,} lines were executed; is there a loop that never waits?")
        return watch

    return watch
