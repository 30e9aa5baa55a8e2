"""The checks of lesson 00."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import rules, tasks, theory
from ..engine import Virtual, train
from ..methods import Hogwild
from ..result import Result
from .exercise import Exercise, Verdict, is_number, same_weights


def _kept(answer: Any) -> Verdict:
    """8 Hogwild! workers, one of them 4 times slower: what is left of the samples, in per cent."""
    asked = "the samples that are still trained, in per cent of eight equal workers', to the nearest 2"
    if not is_number(answer):
        return Verdict(False, asked, f"{answer!r}, which is no number", "Give one number, such as 50.")
    task = tasks.quadratic()
    runs = [
        train(task, Hogwild(8), seconds=600, engine=Virtual(jitter=0), slow=slow, rule=rules.SGD(lr=0.01),
              trace=False, progress=False)
        for slow in ({}, {0: 4.0})
    ]  # fmt: skip
    true = 100 * runs[1].samples / runs[0].samples
    if abs(answer - true) <= 2:
        return Verdict(True, asked, f"{answer:g} %")
    if abs(answer - 25) < 1:
        hint = "That is what is left when all wait for the slow one. Here nobody waits for anybody."
    elif abs(answer - 87.5) < 0.6:
        hint = "The slow worker is not gone: it still does a part of its own share."
    elif answer >= 98:
        hint = "Nobody waits, but the slow worker itself does less. How much less?"
    elif answer < true:
        hint = "How much does each of the seven others do? And the slow one?"
    else:
        hint = "Seven workers do all of theirs. Add what the slow one does, and divide by eight."
    return Verdict(False, asked, f"{answer:g} %", hint)


def _same_bits(answer: Callable[[], Result]) -> Verdict:
    """A function that trains; asked for: the same bits at each call."""
    asked = "a run of Hogwild! with 3 workers, worker 0 slowed 4 times, 640 samples, that is the same at each call"
    if not callable(answer):
        return Verdict(False, asked, f"{answer!r}, which cannot be called", "Give the function itself, without ().")
    first = answer()
    if not isinstance(first, Result):
        return Verdict(False, asked, f"a function that returns {type(first).__name__}", "Return what lu.train returns.")
    if first.unit != "virtual s":
        return Verdict(
            False, asked, f"a run on real threads ({first.threads} of them)",
            "Who writes first on real threads is decided by the machine. Which engine decides it by the seed?",
        )  # fmt: skip
    if first.method != str(Hogwild(3)):
        return Verdict(False, asked, f"a run of {first.method}", "Look at the method, and at its number of workers.")
    if first.samples != 640:
        return Verdict(False, asked, f"{first.samples} samples", "Look at the budget.")
    if first.settings["slow"] != {"0": 4.0}:
        return Verdict(False, asked, f"slowed: {first.settings['slow'] or 'nobody'}", "Workers are counted from 0.")
    second = answer()
    if not same_weights(first.model, second.model):
        seeds = first.settings["seed"], second.settings["seed"]
        return Verdict(
            False, asked, f"two calls that end with different weights (their seeds: {seeds[0]} and {seeds[1]})",
            "The same seed gives the same initial weights, rows and order of events. Where does yours come from?",
        )  # fmt: skip
    return Verdict(True, asked, "two calls that end with the same bits in every weight")


def _design(answer: Any) -> Verdict:
    """(workers, factor) with which the asynchronous keep 95 % and the synchronous less than 20 %."""
    asked = "workers and a slowness with which waiting leaves less than 20 %, and not waiting more than 95 %"
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
        return Verdict(False, asked, f"{answer!r}", "Give two numbers: (workers, times slower).")
    sync, free = theory.straggler_speed(answer[0], answer[1])
    yours = f"{answer[0]} workers, {answer[1]:g} times slower: waiting leaves {sync:.1%}, not waiting {free:.1%}"
    if sync >= 0.2:
        return Verdict(False, asked, yours, "Who waits goes at the slowest one's pace: it has to be slower.")
    if free <= 0.95:
        return Verdict(
            False, asked, yours, "The slow worker's share of all the work is too large. What makes it small?"
        )
    return Verdict(True, asked, yours)


EXERCISES = [
    Exercise("00.1", "What one slow worker costs those who do not wait", "predict", 5, _kept),
    Exercise("00.2", "The same bits, twice", "repair", 15, _same_bits),
    Exercise("00.3", "The worst straggler that costs nearly nothing", "design", 10, _design, graded=False),
]
