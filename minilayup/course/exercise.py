"""An exercise and what its check says.  The checks of lesson 04, say, are in ``lesson_04.py`` beside this file.

A check is a function from the reader's answer to a `Verdict`.  It never knows the solution's text, never prints, and
never depends on real time, on cores or on exact floats.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import choose

KINDS = ("predict", "repair", "design", "interpret")


@dataclass(frozen=True)
class Verdict:
    """What a check says, in words.

    expected: what was asked for, without giving it away.  yours: what the answer did.  hint: what to look at next.
    """

    passed: bool
    expected: str
    yours: str
    hint: str = ""

    def __str__(self) -> str:
        lines = ["✔ Passed." if self.passed else "✘ Not yet."]
        lines += [f"  expected: {self.expected}", f"  yours:    {self.yours}"]
        if self.hint and not self.passed:
            lines.append(f"  hint:     {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Args:
        id: such as "04.2"; the notebook's variable is ``answer_04_2``.
        title: a few words.
        kind: "predict" a number, "repair" a planted fault, "design" to a target, or "interpret" a run of one's own.
        minutes: for a reader who meets it first.
        check: the answer -> a `Verdict`.
        graded: the optional third exercise is not.
    """

    id: str
    title: str
    kind: str
    minutes: int
    check: Callable[[Any], Verdict]
    graded: bool = True

    def __post_init__(self) -> None:
        choose("kind", self.kind, KINDS)

    def grade(self, answer: Any) -> Verdict:
        """Check an answer; what it raises is part of the verdict, with the line it happened in."""
        if untouched(answer):
            return Verdict(False, f"an answer to exercise {self.id}, “{self.title}”", "not tried yet")
        try:
            return self.check(answer)
        except NotImplementedError:
            return Verdict(False, f"an answer to exercise {self.id}, “{self.title}”", "not tried yet")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"line {last.lineno} of {last.name}: {(last.line or '').strip()}"
            said = f"{type(error).__name__}: {error}"
            return Verdict(False, "an answer that can be used", said, f"It was raised in {where}")


def untouched(answer: Any) -> bool:
    """Whether an answer is the notebook's stub: ``...``, None, or a collection with one of them in it."""
    if isinstance(answer, dict):
        return not answer or any(map(untouched, answer.values()))
    if isinstance(answer, (list, tuple)):
        return not answer or any(map(untouched, answer))
    return answer is ... or answer is None


def close(given: Any, true: float, within: float, what: str, unit: str = "", hint: str = "") -> Verdict:
    """A verdict on a number: passed if it is within ``within`` (a share) of the true one."""
    asked = f"{what}{f', in {unit}' if unit else ''}, within {within:.0%}"
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return Verdict(False, asked, f"{given!r}, which is no number", "Give one number.")
    return Verdict(abs(given - true) <= within * abs(true), asked, f"{given:g}{f' {unit}' if unit else ''}", hint)
