"""The two clocks.

`RealClock`: threads run freely and computing takes the time it takes.

`VirtualClock`: the same threads, one at a time, always the one whose virtual time is lowest.  The baton is passed on in
every wait, also from inside autograd hooks, so order and arithmetic are a function of the seed alone.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable

import torch

from .threads import Clock, Deadlock, Program, Stop


class RealClock(Clock):
    """Threads run freely; seconds are seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = self._mutex = threading.RLock()
        self._start = time.perf_counter()
        self._stopping = threading.Event()
        self._blocked = 0
        self._courier = Courier(self)

    def now(self) -> float:
        return time.perf_counter() - self._start

    def sleep(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise Stop

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self._courier.send(time.perf_counter() + seconds, action)

    def block(self, key: object) -> None:
        self.check()
        if self._blocked + 1 == self._alive:
            raise Deadlock("every program waits for another one")
        me = self.program
        self._blocked += 1
        self._waiting.setdefault(key, deque()).append(me)
        self._mutex.release()
        me.baton.acquire()
        self._mutex.acquire()
        self.check()

    def stop(self) -> None:
        with self._mutex:
            super().stop()
            self._stopping.set()
            for key in list(self._waiting):
                self.wake(key)

    def _begin(self, programs: list[Program]) -> None:
        self._start = time.perf_counter()
        for program in programs:
            program.baton.release()

    def _resume(self, program: Program) -> None:
        self._blocked -= 1
        program.baton.release()

    def _leave(self) -> None:
        if self._alive and self._blocked == self._alive and not self.stopped:
            self._fail(f"after {self.program} had ended", Deadlock("every program that is left waits for another one"))

    def _end(self) -> None:
        self._courier.close()


class Courier:
    """The thread that carries delayed messages on the real clock; it starts with the first one."""

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._messages: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closing = False

    def send(self, at: float, action: Callable[[], None]) -> None:
        """Have ``action`` run at ``time.perf_counter() == at``."""
        with self._changed:
            heapq.heappush(self._messages, (at, next(self._order), action))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="minilayup-courier")
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Deliver what is on its way (unless the run was stopped) and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)
        try:
            while (action := self._next()) is not None:
                action()
        except BaseException as error:
            self._clock._fail("a message", error)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._clock.stopped:
                if self._messages and (self._closing or self._messages[0][0] <= time.perf_counter()):
                    return heapq.heappop(self._messages)[2]
                if self._closing:
                    return None
                self._changed.wait(self._messages[0][0] - time.perf_counter() if self._messages else None)
            return None


class VirtualClock(Clock):
    """One thread at a time, always the one whose virtual time is lowest (first come, first served on ties).

    Each program has its own random stream: torch's default generator changes hands together with the baton.
    """

    unit = "virtual s"

    def __init__(self) -> None:
        super().__init__()
        self._time = 0.0
        self._order = itertools.count()
        self._ready: list[tuple[float, int, Program | Callable[[], None]]] = []

    def now(self) -> float:
        return self._time

    def sleep(self, seconds: float) -> None:
        self.check()
        at = self._time + seconds
        if self._ready and self._ready[0][0] <= at:
            heapq.heappush(self._ready, (at, next(self._order), self.program))
            self._give_way()
        else:  # nobody is due before
            self._time = at

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._ready, (self._time + seconds, next(self._order), action))

    def block(self, key: object) -> None:
        self.check()
        waiting = self._waiting.setdefault(key, deque())
        waiting.append(self.program)
        try:
            self._give_way()
        except Deadlock:
            waiting.remove(self.program)
            raise

    def _begin(self, programs: list[Program]) -> None:
        for program in programs:
            self._resume(program)
        first = self._next()
        assert first is not None
        first.baton.release()

    def _enter(self, program: Program) -> None:
        torch.default_generator.manual_seed(program.seed)
        if hasattr(os, "sched_setaffinity"):
            # One at a time, so on one core: passing the baton to another core takes longer than most layers do.
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})

    def _resume(self, program: Program) -> None:
        heapq.heappush(self._ready, (self._time, next(self._order), program))

    def _give_way(self) -> None:
        """Pass the baton on, and wait to have it back."""
        me = self.program
        successor = self._next()
        if successor is None:
            raise Deadlock("every program waits for another one")
        if successor is not me:
            random_state = torch.default_generator.get_state()
            successor.baton.release()
            me.baton.acquire()
            torch.default_generator.set_state(random_state)
        self.check()

    def _leave(self) -> None:
        successor = self._next()
        if successor is None and self._alive and not self.stopped:
            self._fail(f"after {self.program} had ended", Deadlock("every program that is left waits for another one"))
            successor = self._next()
        if successor is not None:
            successor.baton.release()

    def _next(self) -> Program | None:
        """The program whose turn it is, or None; messages that are due before it are delivered on the way."""
        while self._ready:
            self._time, _, entry = heapq.heappop(self._ready)
            if isinstance(entry, Program):
                return entry
            if not self.stopped:
                try:
                    entry()
                except BaseException as error:
                    self._fail("a message", error)
        if self.stopped:  # wake those who wait, one after the other, so that each can end
            for waiting in self._waiting.values():
                if waiting:
                    return waiting.popleft()
        return None
