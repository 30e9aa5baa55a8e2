"""Lesson 06, decoupled forward and backward: the checks of its exercises."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from ..clocks import VirtualClock
from ..figures.forward_backward import VirtualRun, ideal, virtual_run
from ..threads import Deadlock, Program, ProgramError
from .exercise import Exercise, Verdict, is_number

SEEDS = range(3)


def _runs(forward: int, backward: int, slack: int, t_f: float, t_b: float) -> list[VirtualRun]:
    return [virtual_run(forward, backward, slack, t_f, t_b, seed) for seed in SEEDS]


# -- 06.1 --------------------------------------------------------------------------------------------------------------
PREDICT = {"forward": 2, "backward": 3, "slack": 3, "t_f": 0.010, "t_b": 0.024}
KEYS = ("batches/s", "in flight", "MB")


def _predict(answer: Any) -> Verdict:
    """2 forward : 3 backward, slack 3, 8 cores, passes of 10 and 24 ms, 5 MB a batch."""
    asked = "batches a second, batches in flight and MB of activations, each within 6 % of runs on the virtual clock"
    if not isinstance(answer, dict) or set(answer) != set(KEYS) or not all(map(is_number, answer.values())):
        return Verdict(False, asked, f"{answer!r}", f"Give a dict with a number for each of {', '.join(KEYS)}.")
    runs = _runs(**PREDICT)  # type: ignore[arg-type]
    in_flight = fmean(run.in_flight for run in runs)
    true = dict(zip(KEYS, (fmean(run.rate * run.speed(8) for run in runs), in_flight, 5 * in_flight)))
    yours = ", ".join(f"{answer[key]:g} {key}" for key in KEYS)
    wrong = [key for key in KEYS if not abs(answer[key] - true[key]) <= 0.06 * true[key]]
    if not wrong:
        return Verdict(True, asked, yours)
    return Verdict(False, asked, f"{yours}; not right: {wrong[0]}", _why(wrong[0], answer))


def _why(key: str, answer: dict[str, float]) -> str:
    """A hint for the first number that is wrong."""
    given = answer[key]
    if key == "batches/s":
        forward, backward, t_f, t_b = 2, 3, 0.010, 0.024
        slips = [
            (forward / t_f, "That is what the forward threads can do. Can the backward threads follow?"),
            (8 / (t_f + t_b), "That is what eight cores can do. Are there enough threads to keep eight cores busy?"),
            ((forward + backward) / (t_f + t_b), "That counts five threads that each do both passes. Here each does "
             "one kind of pass, and the slower group is waited for."),
            (1 / (t_f + t_b), "That is one thread that does both passes in turn."),
        ]  # fmt: skip
        for value, hint in slips:
            if abs(given - value) < 0.02 * value:
                return hint
        return "Work out for each group how many batches a second it can do. The slower one sets the pace."
    if key == "in flight":
        if given == 5:
            return "That is one batch for each thread. Where are those that wait for a backward thread?"
        if given == 3:
            return "That is the slack alone. Each thread holds a view, too."
        return "Which group is slower? If batches pile up before it, what stops the pile from growing?"
    return "Each batch in flight keeps its activations until its backward pass is done."


# -- 06.2 --------------------------------------------------------------------------------------------------------------
T_F, T_B = 0.010, 0.025
TARGETS = {  # machine: cores, least batches/s, most mean staleness, most views
    "4 cores": (4, 95.0, 3.0, 5),
    "2 cores": (2, 54.0, 2.2, 3),
}


def _design(answer: Any) -> Verdict:
    """(F, B, slack) for each of two machines."""
    asked = "for each machine (F, B, slack) that keeps to its budget of views and staleness and reaches its throughput"
    if not isinstance(answer, dict) or set(answer) != set(TARGETS):
        return Verdict(False, asked, f"{answer!r}", 'Give {"4 cores": (F, B, slack), "2 cores": (F, B, slack)}.')
    said = []
    for machine, layout in answer.items():
        words, hint = _judge(machine, layout)
        said.append(f"{machine}: {words}")
        if hint:
            return Verdict(False, asked, "; ".join(said), hint)
    return Verdict(True, asked, "; ".join(said))


def _judge(machine: str, layout: Any) -> tuple[str, str]:
    """What a layout does on a machine, and what is wrong with it, if anything."""
    cores, least, stale, views = TARGETS[machine]
    good = isinstance(layout, (tuple, list)) and len(layout) == 3 and all(type(part) is int for part in layout)
    if not good or min(layout[:2]) < 1 or layout[2] < 0 or sum(layout) > 40:
        return f"{layout!r}", "Give three whole numbers: F and B at least 1, slack at least 0."
    forward, backward, slack = layout
    runs = _runs(forward, backward, slack, T_F, T_B)
    rate, tau = fmean(run.rate * run.speed(cores) for run in runs), fmean(run.staleness for run in runs)
    words = (
        f"{forward} forward : {backward} backward, {sum(layout)} views, {rate:.0f} batches/s, mean staleness {tau:.1f}"
    )
    if sum(layout) > views:
        where = "the slack" if slack else "the threads"
        return words, f"There is memory for {views} views, F + B + slack of them. What do you get for {where}?"
    if rate < least:
        limit = ideal(forward, backward, T_F, T_B, slack, cores).limit
        return words, f"At least {least:g} batches/s are wanted. What limits yours: {limit}."
    if tau > stale:
        return words, (
            f"A mean staleness of at most {stale:g} is wanted. While the backward threads are the slower ones, "
            "every view is in flight; while the forward threads are, the queue is empty."
        )
    return words, ""


# -- 06.3 --------------------------------------------------------------------------------------------------------------
class Reused(RuntimeError):
    """A view was given a batch while the one before still needed its activations."""


class SiteView:
    """A view that holds one batch from its forward pass to the end of its backward pass; passes only take time."""

    def __init__(self, site: Site) -> None:
        self._site, self._holds = site, -1

    def forward(self, batch: int) -> int:
        """Takes 1 virtual second; returns the batch as its loss."""
        if self._holds >= 0:
            raise Reused(f"a view was given batch {batch} while it still held the activations of batch {self._holds}")
        self._holds = batch
        self._site.flying += 1
        self._site.peak = max(self._site.peak, self._site.flying)
        self._site.clock.sleep(1.0)
        return batch

    def backward(self, loss: int) -> None:
        """Takes 2 virtual seconds."""
        if self._holds != loss:
            raise Reused(
                f"a view was to back-propagate batch {loss}, and holds {self._holds if self._holds >= 0 else 'none'}"
            )
        self._site.clock.sleep(2.0)
        self._holds = -1
        self._site.flying -= 1
        self._site.done.append(loss)


class Site:
    """What the programs of exercise 06.3 are connected with: two forward and two backward ones, two views for each
    forward program, sixty batches, and a virtual clock."""

    forward, backward, each, count = 2, 2, 2, 60

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.done: list[int] = []
        self.flying = self.peak = 0
        self._left = iter(range(self.count))

    def view(self) -> SiteView:
        """A new view, with memory of its own for the activations of one batch."""
        return SiteView(self)

    def batches(self) -> Iterator[int]:
        """The next batches, shared by all who ask."""
        yield from self._left

    def run(self, bodies: list[Callable[[], None]]) -> None:
        """Run them to their end; raises `ProgramError` for what goes wrong in one of them."""
        until = time.monotonic() + 4.0  # only so that a loop without end does not hang the notebook

        def tick() -> None:
            if time.monotonic() > until:
                raise TimeoutError("the programs go round and round: after 4 s they had not come to an end")

        kinds = ["forward"] * self.forward + ["backward"] * self.backward
        programs = [Program(k, body, kind, k) for k, (body, kind) in enumerate(zip(bodies, kinds))]
        self.clock.run(programs, tick)


def _repair(answer: Any) -> Verdict:
    """A function that connects the programs of a `Site`."""
    asked = "all 60 batches back-propagated once, at most 4 in flight, about 1 batch a virtual second, no deadlock"
    if not callable(answer):
        return Verdict(False, asked, f"{answer!r}, which is no function", "Give the function itself, without ().")
    site = Site()
    bodies = answer(site)
    if not isinstance(bodies, list) or len(bodies) != site.forward + site.backward or not all(map(callable, bodies)):
        return Verdict(False, asked, f"a function that returns {bodies!r}", "Return the list of four programs.")
    try:
        site.run(bodies)
    except ProgramError as error:
        if isinstance(error.__cause__, Reused):
            return Verdict(
                False, asked, str(error.__cause__), "A view may go home when nobody needs its activations any more."
            )
        if isinstance(error.__cause__, Deadlock):
            return Verdict(
                False, asked, f"Deadlock after {len(site.done)} of 60 batches: {error.__cause__}",
                "Who still waits, and for what? A queue ends its loop once all who fill it have closed it.",
            )  # fmt: skip
        raise
    if sorted(site.done) != list(range(site.count)):
        return Verdict(False, asked, f"{len(set(site.done))} of 60 batches were back-propagated", "Where do they go?")
    if site.peak > site.forward * site.each:
        return Verdict(
            False, asked, f"{site.peak} batches were in flight at once: memory for {site.peak} sets of activations",
            "What makes a forward program wait when the backward programs cannot follow?",
        )  # fmt: skip
    rate = site.count / site.clock.ended
    if rate < 0.85:
        return Verdict(
            False, asked, f"{rate:.2f} batches a virtual second",
            "Two backward programs of 2 s each can do 1 a second. Who keeps them from it?",
        )  # fmt: skip
    return Verdict(True, asked, f"60 batches, at most {site.peak} in flight, {rate:.2f} batches a virtual second")


EXERCISES = [
    Exercise("06.1", "How fast, how many in flight, how much memory", "predict", 10, _predict),
    Exercise("06.2", "Two machines, two layouts", "design", 25, _design),
    Exercise("06.3", "Views that come home", "repair", 20, _repair, graded=False),
]
