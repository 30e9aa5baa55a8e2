"""The checks of lesson 03."""

from __future__ import annotations

import inspect
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from ..clocks import VirtualClock
from ..figures.scheduler import WRITES, interleave
from ..threads import Clock, Deadlock, Program, ProgramError
from .exercise import Exercise, Verdict, is_number

ADD, STORE = WRITES
ASKED = {  # item: (order, kind of write, what is asked)
    "a": ("ABABAB", STORE, "lost"),
    "b": ("ABABAB", ADD, "lost"),
    "c": ("ABABAB", ADD, "stale"),
    "d": ("ABBBBBBAA", STORE, "lost"),
    "e": ("ABBBBBBAA", STORE, "w"),
}
MISTAKES = {  # (item, answer): what it says about how one thinks
    ("a", 0): "without a lock nothing keeps B from storing over what A has stored: follow what B had read",
    ("a", 2): "of two stores, the later one always stays",
    ("b", 1): "a race need not lose anything: in place, the write takes w as it is then, and adds to it",
    ("b", 2): "a race need not lose anything: in place, the write takes w as it is then, and adds to it",
    ("c", 0): "not lost does not mean fresh: count the writes between B's read and B's write",
    ("c", 2): "the first write is fresh: nobody has written between A's read and A's write",
    ("d", 0): "A's copy is older than both of B's writes, and A stores it last",
    ("d", 1): "one late store can erase more than one update: count all writes since A's read",
    ("d", 3): "the last store always stays",
    ("e", 27): "that is w with all three updates in it, one after the other",
    ("e", 36): "that is w without A's update; but A stores last",
    ("e", 20): "that is what adding in place gives; here A stores a copy",
}


def interleavings(answer: Any) -> Verdict:
    """03.1: what comes out of given orders of two threads' steps."""
    expected = "five numbers, {'a': …, 'b': …, 'c': …, 'd': …, 'e': …}"
    if not isinstance(answer, dict) or set(answer) != set(ASKED):
        return Verdict(False, expected, f"{answer!r}", "Fill in the numbers of the stub, and keep its letters.")
    wrong = []
    for item, (order, write, what) in ASKED.items():
        given = answer[item]
        if not is_number(given):
            return Verdict(False, expected, f"{item} is {given!r}, which is no number", "Give one number for each.")
        steps = interleave(order, write)
        writes = [step for step in steps if step.kind == "write"]
        true = {
            "lost": len(writes) - len(steps[-1].kept),
            "stale": sum(step.staleness > 0 for step in writes),
            "w": steps[-1].w,
        }[what]
        if given != true:
            wrong.append(item)
    if not wrong:
        return Verdict(True, expected, "all five are right")
    first = wrong[0]
    hint = MISTAKES.get((first, answer[first]), "write down what each thread has read, then what each write does")
    yours = f"{len(ASKED) - len(wrong)} of 5 are right; {', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not"
    return Verdict(False, expected, yours, f"{first}: {hint}.")


# -- 03.2 -------------------------------------------------------------------------------------------------------------


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
SCHEDULES = 40
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
        problem: "" or one of `HINTS`.  said: more about it.
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


def repaired(answer: Any) -> Verdict:
    """03.2: many schedules, tried in a thread that can be given up if the answer never returns."""
    expected = "an update(i, j, w, locks, compute) that loses nothing, uses nothing old and never blocks"
    if not callable(answer):
        return Verdict(False, expected, f"{answer!r}, which is no function", "Write answer_03_2 = update.")
    own = _own_waits(answer)
    if own:
        hint = "The virtual clock does not see it: use the locks you are given."
        return Verdict(False, expected, f"uses {own}", hint)
    verdicts: list[Verdict] = []
    judge = threading.Thread(target=lambda: verdicts.append(_judge(answer, expected)), daemon=True)
    judge.start()
    judge.join(30)  # it takes less than one second, unless it waits for something that never comes
    if not verdicts:
        hint = "Wait with the given locks only; then restart the kernel, for that thread is still there."
        return Verdict(False, expected, "it waits for something that the virtual clock does not see", hint)
    return verdicts[0]


def _own_waits(answer: Any) -> str:
    """The name of something in the answer that waits in real time, "" if there is none."""
    if not inspect.isfunction(answer):
        return ""
    seen = inspect.getclosurevars(answer)
    locks = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
    for name, value in {**seen.globals, **seen.nonlocals}.items():
        if value in (threading, time) or isinstance(value, locks):
            return name
    return "input" if "input" in seen.builtins else ""


HINTS = {
    "deadlock": "Each holds what another one waits for. In which order does each worker take its two locks?",
    "a lock that is kept": "Give back each lock that you have taken.",
    "no single computation": "Call compute(first, second) once, with what you have read.",
    "an error": "The update must take (i, j, w, locks, compute) and run through.",
    "lost": "What happens between a read and its write? A lock must be held at both, and from one to the other.",
    "stale": "Nothing was lost, but others wrote while you computed. Hold the locks from the read to the write.",
    "slow": "They wait for each other in vain: lock no more than the two numbers need.",
}


def _judge(answer: Update, expected: str) -> Verdict:
    made = lost = stale = 0
    for seed in range(SCHEDULES):
        source = random.Random(seed)
        pairs = [[(p[0], p[1]) for p in (source.sample(range(4), 2) for _ in range(4))] for _ in range(3)]
        trial = Trial(answer, pairs, seed)
        if trial.problem:
            yours = f"{trial.problem} in schedule {seed} of {SCHEDULES}: {trial.said}"
            return Verdict(False, expected, yours, HINTS[trial.problem])
        made, lost, stale = made + trial.made, lost + trial.lost, stale + trial.stale
    if lost or stale:
        yours = f"of {made} updates of a number in {SCHEDULES} schedules, {lost} are lost and {stale} are stale"
        return Verdict(False, expected, yours, HINTS["lost" if lost else "stale"])
    apart = Trial(answer, [[(0, 1)] * 5, [(3, 2)] * 5], None)
    if apart.seconds > 5.5:
        yours = f"two workers that share no number take {apart.seconds:g} virtual seconds; 5 are enough"
        return Verdict(False, expected, yours, HINTS["slow"])
    yours = f"0 of {made} updates are lost or stale in {SCHEDULES} schedules, and nobody waits in vain"
    return Verdict(True, expected, yours)


# -- 03.3 -------------------------------------------------------------------------------------------------------------


def worst_order(answer: Any) -> Verdict:
    """03.3: the order of two threads' steps that loses the most."""
    expected = "18 letters, nine A and nine B, after which w holds as few updates as possible"
    if not isinstance(answer, str) or sorted(answer) != ["A"] * 9 + ["B"] * 9:
        yours = f"{answer!r}" if not isinstance(answer, str) else f"{answer.count('A')} A and {answer.count('B')} B"
        return Verdict(False, expected, yours, "Each thread reads, computes and writes three times: nine letters.")
    last = interleave(answer, STORE)[-1]
    lost = 6 - len(last.kept)
    hints = {
        0: "Let one thread read before the other one writes.",
        1: "Let a thread read early, and write late.",
        2: "Let a thread read early, and write late.",
        3: "Better than taking turns: the copy that is stored last can itself come from a late store of an old copy.",
    }
    return Verdict(lost >= 4, expected, f"{lost} of 6 updates are lost, w is {last.w:g}", hints.get(lost, ""))


EXERCISES = [
    Exercise("03.1", "What comes out?", "predict", 10, interleavings),
    Exercise("03.2", "Two locks", "repair", 25, repaired),
    Exercise("03.3", "The worst scheduler", "design", 10, worst_order, graded=False),
]
