"""An exercise and what its check says.  The checks of lesson 04, say, are in ``lesson_04.py`` beside this file.

A check is a function from the reader's answer to a `Verdict`.  It never knows the solution's text, never prints, and
never depends on real time, on cores or on exact floats.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import choose

KINDS = ("predict", "repair", "design", "interpret")


@dataclass(frozen=True)
class Verdict:
    """What a check says, in words.

    expected: what was asked for, without giving it away.  yours: what the answer did.  hint: what to look at next.
    tried: False for an untouched stub.
    """

    passed: bool
    expected: str
    yours: str
    hint: str = ""
    tried: bool = True

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
        untried = Verdict(False, f"an answer to exercise {self.id}, “{self.title}”", "not tried yet", tried=False)
        if untouched(answer):
            return untried
        try:
            return self.check(answer)
        except NotImplementedError:
            return untried
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


def is_number(answer: Any) -> bool:
    """Whether an answer is an int or a float; a bool, which Python takes for an int, is none."""
    return isinstance(answer, (int, float)) and not isinstance(answer, bool)


def same_weights(one: nn.Module, other: nn.Module, within: float = 0.0) -> bool:
    """Whether all weights of two networks of one kind are equal, bit for bit or ``within`` so much."""
    pairs = zip(one.parameters(), other.parameters())
    return all(a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=within) for a, b in pairs)
