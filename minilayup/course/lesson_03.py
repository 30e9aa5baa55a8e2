"""The checks of lesson 03."""

from __future__ import annotations

import inspect
import random
import threading
import time
from typing import Any

from ..figures.scheduler import WRITES, interleave
from .exercise import Exercise, Verdict, is_number
from .locking import Trial, Update

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


SCHEDULES = 40


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
