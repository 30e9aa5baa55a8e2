"""The checks of lesson 07."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import rules, theory
from ..engine import Virtual, train
from ..methods import Method
from ..run import Diverged
from .exercise import Exercise, Verdict, is_number
from .lesson import small_task, stored

ANSWERS = ("holds", "does not hold", "not shown")

CLAIMS = {  # what the claim says is larger, what it is compared with, and which stored number
    "a": ("threads.t12.hogwild_layer.rates", "threads.t12.hogwild_block.rates"),
    "b": ("threads.t12.pdasgd.rates", "threads.t12.dasgd.rates"),
    "c": ("threads.t12.pdasgd.rates", "threads.t12.hogwild_layer.rates"),
    "d": ("threads.t3.hogwild_layer.rates", "threads.t3.hogwild_block.rates"),
    "e": ("threads.t12.pdasgd_stashed.rates", "threads.t12.pdasgd.rates"),
}


def _relative(answer: Any) -> Verdict:
    """PD-ASGD with 2 forward and 4 backward threads over 6 Hogwild! threads, at beta = 3."""
    asked = "samples/s of PD-ASGD with 2 forward : 4 backward threads over those of 6 Hogwild! threads, to within 0.03"
    if not is_number(answer):
        return Verdict(False, asked, f"{answer!r}, which is no number", "Give one number, such as 1.5.")
    true = theory.speed_up(2, 4, 3.0) / 6
    if abs(answer - true) <= 0.03:
        return Verdict(True, asked, f"{answer:g}")
    if abs(answer - 1) <= 0.03:
        hint = "Only if no thread ever waits. How many backward threads would two forward threads keep busy here?"
    elif abs(answer - theory.speed_up(2, 4, 3.0)) < 0.1:
        hint = "That is how many times as fast as ONE thread it is. The six others are not one."
    elif answer > 1:
        hint = "Six threads do the work of six threads at most, however it is divided among them."
    elif abs(answer - 2 / 3) <= 0.03:
        hint = "Forward threads work, too: their share of a batch is 1 of 1 + 3."
    else:
        hint = "Which of the two groups is the slower one? How many batches does it do while one forward pass takes 1?"
    return Verdict(False, asked, f"{answer:g}", hint)


def judge(larger: list[float], smaller: list[float]) -> str:
    """What pairs of one seed each show about "the first is larger": one of `ANSWERS`.

    Shown is what is more than two standard errors of the paired differences away from nothing.
    """
    differences = [one - other for one, other in zip(larger, smaller, strict=True)]
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / len(differences) ** 0.5
    return "not shown" if abs(mean) <= 2 * error else "holds" if mean > 0 else "does not hold"


def _claims(answer: Any) -> Verdict:
    """Five claims about critical learning rates, judged by the stored pairs."""
    asked = f"for each of the claims a to e one of {', '.join(map(repr, ANSWERS))}, by the rule of two standard errors"
    if not isinstance(answer, dict) or set(answer) != set(CLAIMS):
        return Verdict(False, asked, f"{answer!r}", "Give a dict with the keys 'a', 'b', 'c', 'd' and 'e'.")
    unknown = [value for value in answer.values() if value not in ANSWERS]
    if unknown:
        return Verdict(False, asked, f"{unknown[0]!r}, which is none of the three", "Write one of the three answers.")
    results = stored("lesson07")

    def pairs(path: str) -> list[float]:
        found: Any = results
        for key in path.split("."):
            found = found[key]
        return list(found)

    truths = {claim: judge(*map(pairs, paths)) for claim, paths in CLAIMS.items()}
    wrong = [claim for claim in CLAIMS if answer[claim] != truths[claim]]
    yours = f"{len(CLAIMS) - len(wrong)} of {len(CLAIMS)} are right"
    if not wrong:
        return Verdict(True, asked, yours)
    claim = wrong[0]
    if truths[claim] == "not shown":
        hint = f"Look at {claim} again: take the difference seed by seed. Is its mean outside two standard errors?"
    elif answer[claim] == "not shown":
        hint = f"Look at {claim} again: the two spreads overlap, but what of the differences of one seed each?"
    else:
        hint = f"Look at {claim} again: which of the two is larger? The rates are measured; staleness is not the judge."
    return Verdict(False, asked, yours, hint)


SECONDS, THREADS, TARGET = 120.0, 6, 0.7


def _design(answer: Any) -> Verdict:
    """(method, learning rate): at most 6 threads, 70 % in 120 virtual seconds on each of three seeds."""
    asked = f"{TARGET:.0%} on each of three seeds, {SECONDS:g} virtual seconds, at most {THREADS} threads"
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[0], Method)):
        return Verdict(False, asked, f"{answer!r}", "Give (method, learning rate), such as (lu.Hogwild(6), 0.01).")
    method, lr = answer
    if method.threads > THREADS:
        return Verdict(False, asked, f"{method} with {method.threads} threads", "Forward and backward threads count.")
    go: Callable[..., Any] = partial(
        train, small_task(), method, seconds=SECONDS, batch_size=32, rule=rules.SGD(lr=lr), engine=Virtual(jitter=0.3),
        trace=False, progress=False, evaluate_every=1_000_000,
    )  # fmt: skip
    try:
        runs = [go(seed=seed) for seed in range(3)]
    except Diverged as error:
        return Verdict(False, asked, f"a run of {method} diverged", f"{error}")
    scores = [run.score for run in runs]
    yours = (
        f"{method}, learning rate {lr:g}: {', '.join(f'{score:.1%}' for score in scores)}, {runs[0].samples} samples"
    )
    if min(scores) >= TARGET:
        return Verdict(True, asked, yours)
    if runs[0].samples < 0.75 * SECONDS / 3 * THREADS * 32:
        hint = "Six threads could train about 7,600 samples in this time. Which of yours wait, and for what?"
    elif lr < 0.03:
        hint = "Nothing is unstable here; it is only slow. A larger rate?"
    else:
        hint = "Some seeds do well and others badly: the rate is near the critical one. What lowers staleness?"
    return Verdict(False, asked, yours, hint)


EXERCISES = [
    Exercise("07.1", "Six threads, divided or not", "predict", 10, _relative),
    Exercise("07.2", "Which claims hold?", "interpret", 25, _claims),
    Exercise("07.3", "Six threads, two minutes", "design", 30, _design, graded=False),
]
