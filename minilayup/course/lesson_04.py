"""Lesson 04, Hogwild!: what the lesson runs, and the checks of its exercises."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import theory
from ..engine import Virtual, train
from ..errors import ArgumentError
from ..methods import Hogwild
from ..rules import SGD
from ..run import Diverged
from .exercise import Exercise, Verdict, is_number
from .lesson import small_task

CLOCK = Virtual(jitter=0.3)  # workers begin in phase; this jitter carries them apart within about ten batches
BATCH, SAMPLES = 32, 12_800
TARGET = 0.5  # of the critical rates: a run above the border stays below it
GOAL = 0.62  # of exercise 04.2: a run that is stable, but too slow, stays below it
ONE_WORKER = 0.2  # a learning rate with which one worker does well


# -- what the lesson runs ----------------------------------------------------------------------------------------------


def one_parameter(threads: int = 4, batches: int = 5_000) -> None:
    """Threads that back-propagate into one parameter, whose hook writes it.  Run it in a process of its own."""
    weight, written = nn.Parameter(torch.zeros(64)), itertools.count()

    def write(parameter: Any) -> None:
        parameter.data.add_(parameter.grad, alpha=-0.1)
        parameter.grad = None
        next(written)

    weight.register_post_accumulate_grad_hook(write)

    def worker() -> None:
        for _ in range(batches):
            (weight * torch.randn(64)).sum().backward()

    _together(worker, threads)
    sys.stdout.write(f"{next(written):,} of {threads * batches:,} gradients were written\n")


def one_storage(threads: int = 4, batches: int = 5_000) -> None:
    """The same with a leaf for each thread: their .grad are private, the numbers are shared."""
    weight, written = torch.zeros(64), itertools.count()

    def write(parameter: Any) -> None:
        parameter.data.add_(parameter.grad, alpha=-0.1)
        parameter.grad = None
        next(written)

    def worker() -> None:
        leaf = nn.Parameter(weight.data)  # no copy: an alias of the storage
        leaf.register_post_accumulate_grad_hook(write)
        for _ in range(batches):
            (leaf * torch.randn(64)).sum().backward()

    _together(worker, threads)
    sys.stdout.write(f"{next(written):,} of {threads * batches:,} gradients were written\n")


def _together(worker: Callable[[], None], threads: int) -> None:
    started = [threading.Thread(target=worker) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def in_a_process(program: Callable[[], None], seconds: float = 60.0) -> tuple[int, str]:
    """Run a function of this module in a Python process of its own: (exit code, what it wrote).

    A negative code is the signal that ended it: -11 is a segmentation fault, a read or write of memory that is not the
    process's own; -6 is an abort, such as the allocator's when its own lists are damaged.

    Raises: `subprocess.TimeoutExpired` after so many seconds; the process has been ended then.
    """
    code = f"from {program.__module__} import {program.__name__}; {program.__name__}()"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def scores(lr: float, batch_size: int = BATCH, workers: int = 8) -> list[float]:
    """Test accuracy of the lesson's task after 12,800 samples, for three seeds; 0 for a run that diverged."""
    found = []
    for seed in range(3):
        try:
            run = train(
                small_task(), Hogwild(workers), samples=SAMPLES, batch_size=batch_size, rule=SGD(lr), engine=CLOCK,
                seed=seed, trace=False, evaluate_every=2 * SAMPLES, progress=False,
            )  # fmt: skip
            found.append(run.score)
        except Diverged:
            found.append(0.0)
    return found


# -- 04.1 --------------------------------------------------------------------------------------------------------------
LAMBDA, ETA = 4.0, 0.05


def most_workers(a: float) -> int:
    """The largest N with a staleness of N - 1 for which ``a`` lies below the border."""
    return next(n for n in itertools.count(1) if a >= theory.delay_border(n))


def how_many(answer: Any) -> Verdict:
    asked = "the largest whole number of workers for which the bowl's steepest direction is still stable"
    if not is_number(answer) or answer != answer or answer < 1:
        return Verdict(False, asked, f"{answer!r}, which is no number of workers", "Give one whole number, at least 1.")
    a, true = LAMBDA * ETA, most_workers(LAMBDA * ETA)
    tau = int(min(answer, 1e6)) - 1
    yours = f"{answer:g} workers: staleness {tau:,}, where the border is {theory.delay_border(tau):.4f}"
    if answer == true:
        return Verdict(True, asked, f"{yours}; one worker more, and it is {theory.delay_border(true):.4f} < {a:g}")
    if answer == true - 1 and answer == int(answer):
        return Verdict(
            False, asked, f"{yours}: stable, but one more would be too",
            "The border is asked for at a staleness. How many workers does that staleness belong to?",
        )  # fmt: skip
    if answer > 1000:
        hint = "Staleness is not noise that averages out: find the delay at which the border falls below η·λ."
    elif answer == round(2 / a):
        hint = "You divided 2, the border without delay, by N. It is no 1/N law: compute the border at that delay."
    elif answer > true:
        hint = "Compute η·λ, then go along the border: at which delay is it still above?"
    else:
        hint = "Is the border still above η·λ with more workers? The curvature is to be multiplied, not divided by."
    return Verdict(False, asked, f"{yours}: {'unstable' if answer > true else 'stable, but so are more'}", hint)


# -- 04.2 --------------------------------------------------------------------------------------------------------------
SIZES = (32, 64, 128, 256)


def design(answer: Any) -> Verdict:
    asked = f"with three seeds a test accuracy of at least {GOAL:.0%} after {SAMPLES:,} samples, on 8 workers"
    form = f'Give {{"lr": …, "batch_size": …}}, the batch size one of {SIZES}.'
    if not isinstance(answer, dict) or set(answer) != {"lr", "batch_size"}:
        return Verdict(False, asked, f"{answer!r}", form)
    lr, size = answer["lr"], answer["batch_size"]
    if size not in SIZES or not is_number(lr) or not 0 < lr < 100:
        raise ArgumentError(f"{answer!r} cannot be run. {form}")
    reached = scores(float(lr), int(size))
    said = ", ".join(f"{score:.0%}" if score else "diverged" for score in reached)
    yours = f"learning rate {lr:g}, batches of {size}: {said}"
    if min(reached) >= GOAL:
        return Verdict(True, asked, yours)
    if size > BATCH:
        hint = (
            f"Averaging over more samples makes a gradient less noisy, not less late, and {SAMPLES:,} samples are then "
            f"fewer updates: {SAMPLES // size}. Try batches of {BATCH}, and another learning rate."
        )
    elif lr > ONE_WORKER:
        hint = "That is more than one worker's rate. N workers of synchronous SGD are one large batch; here they are N "
        hint += "late updates, which cost learning rate."
    elif lr == ONE_WORKER:
        hint = "One worker's rate is stable without delay. How much of it is left on the border, at your staleness?"
    elif lr > 0.05:
        hint = (
            "Too large still: near or beyond the border. What is it at this staleness, and how far below do you stay?"
        )
    else:
        hint = "Too slow: stable, but the samples are spent before the target. How near the border may you go?"
    return Verdict(False, asked, yours, hint)


# -- 04.3 --------------------------------------------------------------------------------------------------------------
def late_descent(answer: Any) -> Verdict:
    asked = "all weights of a descent whose gradients are tau updates late, as theory.delayed_descent has them"
    if not callable(answer):
        return Verdict(False, asked, f"{answer!r}, which is no function", "Hand over the function itself.")
    curvature, a, steps = np.array([1.0, 0.5]), 0.3, 40
    for tau in (0, 6, 2):
        start = np.array([1.0, 1.0])
        given = answer(lambda theta: curvature * theta, start.copy(), a, tau, steps)
        path = np.array([np.asarray(theta, dtype=float) for theta in given])
        want = _true_path(curvature, a, tau, steps)
        if path.shape != want.shape:
            return Verdict(
                False, asked, f"an array of shape {path.shape} in place of {want.shape} at tau = {tau}",
                "Return the start and the weights after each of the steps.",
            )  # fmt: skip
        if not np.allclose(path, want, rtol=1e-6, atol=1e-9):
            return Verdict(False, asked, *_wrong_path(path, tau, curvature, a, steps))
    return Verdict(True, asked, "the same at tau = 0, 2 and 6")


def _wrong_path(path: Any, tau: int, curvature: Any, a: float, steps: int) -> tuple[str, str]:
    """What a wrong trajectory does, and where to look."""

    def is_delay(other: int) -> bool:
        return bool(np.allclose(path, _true_path(curvature, a, other, steps), rtol=1e-6, atol=1e-9))

    if np.ptp(path, axis=0).max() < 1e-12:
        return (
            f"at tau = {tau} all entries are the same numbers, the last ones",
            "Every entry of the list is one and the same array. What does -= do to an array that is in the list?",
        )
    if is_delay(0):
        return (
            f"at tau = {tau} it is the trajectory without delay: fresh gradients, stable at any tau",
            "At which weights is the gradient taken? They must be those of tau updates ago.",
        )
    for other in (tau - 1, tau + 1):
        if other >= 0 and is_delay(other):
            return f"at tau = {tau} it is the trajectory of tau = {other}", "Count: tau = 0 is the newest weights."
    first = int(np.argmax(~np.isclose(path, _true_path(curvature, a, tau, steps)).all(axis=1)))
    return (
        f"at tau = {tau} it differs from update {first} on",
        "Are the weights of before the start copies of their own, or do they move with the first updates?",
    )


def _true_path(curvature: Any, a: float, tau: int, steps: int) -> Any:
    """The trajectory that is asked for, [steps + 1, directions]."""
    return np.stack([theory.delayed_descent(a * float(c), tau, steps) for c in curvature], axis=1)


EXERCISES = [
    Exercise("04.1", "How many workers does a learning rate bear?", "predict", 10, how_many),
    Exercise("04.2", "A learning rate for eight workers", "design", 25, design),
    Exercise("04.3", "The gradient that is never late", "repair", 15, late_descent, graded=False),
]
