"""Programs, what they wait with, and how a run ends.

A *program* is a callable that one thread runs.  Whatever a program may wait for (time, a queue, a barrier, a message)
it waits for through the `Clock`; ``clocks.py`` has the two of them, one for real time and one for virtual time.  Each
wait is also the place where a run can be stopped: it raises `Stop`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from .process import as_before
from .queues import Barrier, Queue


class Stop(BaseException):
    """Raised in a program's waits once the run is stopped; it passes through ``backward()`` and ends the thread."""


class ProgramError(RuntimeError):
    """The first exception of a run: its text names worker, program and step; ``__cause__`` is the original."""


class Deadlock(RuntimeError):
    """Every program waits for another one."""


@dataclass(eq=False)
class Program:
    """What one thread runs: the worker it belongs to, its body, and its group ("worker", "forward", "backward")."""

    worker: int
    body: Callable[[], None]
    group: str = "worker"
    index: int = 0  # place among the run's programs: whoever keeps one counter a program indexes by it
    seed: int = 0  # of the program's own random stream (virtual clock)
    step: int = 0  # the batch it works on, for messages
    baton: threading.Lock = field(default_factory=threading.Lock, repr=False)  # released: go on

    def __str__(self) -> str:
        return f"worker {self.worker}, {self.group} program {self.index}, step {self.step}"


class Clock:
    """What both clocks share: who waits for what, how a run stops, the first error.

    A subclass says how time passes and how a blocked program gives way to others.
    """

    unit = "s"

    def __init__(self) -> None:
        self.lock: AbstractContextManager[object] = nullcontext()
        self.stopped = False
        self.error: ProgramError | None = None
        self.ended = 0.0  # when the last program ended, in the clock's seconds
        self._waiting: dict[object, deque[Program]] = {}
        self._barriers: list[Barrier] = []
        self._alive = 0
        self._done = threading.Event()  # every program has ended
        self._aborted = False
        self._me = threading.local()

    @property
    def program(self) -> Program:
        """The program whose thread this is."""
        return self._me.program  # type: ignore[no-any-return]

    def now(self) -> float:
        """Seconds since the run began (virtual ones on the virtual clock)."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass for the calling program."""
        raise NotImplementedError

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run ``action`` after ``seconds``: a message on its way.  What is still on its way at a normal end arrives."""
        raise NotImplementedError

    def block(self, key: object) -> None:
        """Wait until somebody calls ``wake(key)``.  The caller holds ``lock``; it is released meanwhile.

        Raises: `Deadlock` when nobody is left who could call it.
        """
        raise NotImplementedError

    def wake(self, key: object) -> None:
        """Let every program that is blocked on ``key`` go on.  The caller holds ``lock``."""
        for program in self._waiting.pop(key, ()):
            self._resume(program)

    def queue(self, producers: int = 1) -> Queue:  # type: ignore[type-arg]
        """A first-in first-out queue between programs; it closes after its last producer."""
        return Queue(self, producers)

    def barrier(self, parties: int) -> Barrier:
        """A barrier for ``parties`` programs; it shrinks when one of them ends."""
        barrier = Barrier(self, parties)
        self._barriers.append(barrier)
        return barrier

    def stop(self) -> None:
        """End the run now: every program raises `Stop` at its next wait."""
        self.stopped = True

    @as_before()
    def run(self, programs: list[Program], tick: Callable[[], None] = lambda: None) -> None:
        """Run all programs to their end; ``tick`` is called about ten times a second from the calling thread.

        Whatever happens (end, exception, Ctrl-C), no thread is left when this returns or raises, and torch's thread
        count and random stream are the caller's again.

        Raises: `ProgramError` for the first exception in any program.
        """
        if not programs:
            raise ValueError("there are no programs to run")
        self._alive = len(programs)
        threads = [
            threading.Thread(target=self._body, args=(p,), name=f"minilayup-{p.group}-{p.index}") for p in programs
        ]
        for program in programs:
            program.baton.acquire()
        try:
            for thread in threads:
                thread.start()
        except BaseException:  # no more threads, or Ctrl-C: those that have started end without having run
            self._aborted = True
            for program in programs:
                program.baton.release()
            self._join(threads)
            raise
        try:
            self._begin(programs)
            while not self._done.wait(0.1):
                tick()
        except BaseException:  # Ctrl-C or a failing tick
            self.stop()
            raise
        finally:
            self._join(threads)
            self._end()
        if self.error is not None:
            raise self.error

    def _begin(self, programs: list[Program]) -> None:
        raise NotImplementedError

    def _enter(self, program: Program) -> None:
        """The calling program begins."""

    def _resume(self, program: Program) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        """The calling program has ended; the caller holds ``lock``."""
        raise NotImplementedError

    def _end(self) -> None:
        """All programs have ended."""

    def _join(self, threads: list[threading.Thread]) -> None:
        """Wait for all threads; a second Ctrl-C leaves none behind either.

        Up to Python 3.12 a Ctrl-C in ``Thread.join`` marks a thread that still runs as ended.  So it is the programs'
        own word that is waited for, and the join comes when there is nothing left to wait for.  After it, a thread
        still frees what torch kept for it (an exception that passed through ``backward()``); the interpreter must not
        end before that, or the process aborts.  Linux shows such threads in /proc.
        """
        names = [f"/proc/self/task/{thread.native_id}" for thread in threads if thread.native_id]
        while threads or any(map(os.path.exists, names)):
            try:
                if not self._aborted:
                    self._done.wait()
                if not threads:
                    time.sleep(0.001)
                    continue
                if threads[-1].ident is not None:  # it was started
                    threads[-1].join()
                threads.pop()
            except KeyboardInterrupt:
                self.stop()

    def check(self) -> None:
        """Raise `Stop` if the run is stopped."""
        if self.stopped:
            raise Stop

    def _fail(self, where: str, error: BaseException) -> None:
        if self.error is None:
            self.error = ProgramError(f"{where}: {type(error).__name__}: {error}")
            self.error.__cause__ = error
        self.stop()

    def _body(self, program: Program) -> None:
        self._me.program = program
        torch.set_num_threads(1)  # from the main thread it does not reach a thread whose first operation is a product
        program.baton.acquire()
        if self._aborted:
            return
        try:
            self.check()
            self._enter(program)
            program.body()
        except Stop:
            pass
        except BaseException as error:
            self._fail(str(program), error)
        with self.lock:
            self.ended = self.now()
            self._alive -= 1
            for barrier in self._barriers:
                barrier.leave(program)
            self._leave()
        if self._alive == 0:
            self._done.set()
