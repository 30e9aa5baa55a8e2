"""The checks of lesson 02."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import rules, tasks
from ..clocks import VirtualClock
from ..engine import Virtual, train
from ..methods import Hogwild, Method, SyncSGD
from ..process import seeded
from ..threads import Deadlock, Program, ProgramError
from .exercise import Exercise, Verdict, is_number, same_weights

Batch = tuple[Tensor, Tensor]

# -- 02.1 ----------------------------------------------------------------------------------------------------------
ROWS, SECONDS = 32, 90.0
SLOW = {2: 1.5, 5: 2.5}  # of six workers; every batch then ends on a multiple of 22.5 s, and 90 s is one

ASKED = {
    "updates": "updates with the barrier in 90 s",
    "barrier": "samples per virtual second with the barrier",
    "free": "samples per virtual second without it",
}
WRONG = {
    "updates": [
        (72, "each worker's batch counted as an update",
         "N workers do not make N times the updates: how many do they make in one round?"),
        (30, "the pace of the fast workers", "When is the last of the six at the barrier?"),
        (22.5, "the pace of the mean batch time", "A barrier does not open after the mean of the times."),
        (22, "the pace of the mean batch time", "A barrier does not open after the mean of the times."),
        (8, "both slow workers' factors multiplied",
         "The two slow workers compute at the same time, not one after the other."),
        (152, "the batches that are done without the barrier", "With the barrier all wait for each other."),
    ],
    "barrier": [
        (32 * 12 / 90, "one batch a round", "How many rows go into one update of six workers?"),
        (64, "six workers of which none is slow", "How long does a round take?"),
        (48, "the pace of the mean batch time", "A barrier does not open after the mean of the times."),
        (32 * 152 / 90, "what they do without the barrier", "With the barrier all wait for each other."),
        (0.8, "batches, not samples", "A batch is 32 samples."),
    ],
    "free": [
        (25.6, "the slowest one's pace", "Nobody waits for the slowest here."),
        (64, "six workers of which none is slow", "The two slow ones do less. How much less?"),
        (32 * 4 / 3, "four workers, as if the slow ones did nothing", "A slow worker is not gone."),
        (48, "the pace of the mean batch time",
         "Add up what each worker does in a second; the mean of the times does not give that."),
        (152 / 90, "batches, not samples", "A batch is 32 samples."),
    ],
}  # fmt: skip


def _outcomes() -> dict[str, float]:
    """What two runs on the virtual clock give."""

    def run(method: Method) -> tuple[int, float]:
        done = train(
            tasks.quadratic(), method, seconds=SECONDS, batch_size=ROWS, engine=Virtual(jitter=0), slow=SLOW,
            rule=rules.SGD(lr=0.01), trace=False, progress=False, evaluate_every=10**9,
        )  # fmt: skip
        return done.updates, done.samples_per_second

    updates, barrier = run(SyncSGD(6))
    return {"updates": updates, "barrier": barrier, "free": run(Hogwild(6))[1]}


def _throughput(answer: Any) -> Verdict:
    expected = "; ".join(ASKED.values()) + ": each within 1 %"
    if not isinstance(answer, dict) or set(answer) != set(ASKED):
        return Verdict(False, expected, f"{answer!r}", f"Give a dict with the keys {', '.join(map(repr, ASKED))}.")
    for key, value in answer.items():
        if not is_number(value):
            return Verdict(False, expected, f"{key}: {value!r}, which is no number", "Give three numbers.")
    true = _outcomes()
    for key, what in ASKED.items():
        value = answer[key]
        if abs(value - true[key]) <= 0.01 * true[key]:
            continue
        for wrong, words, hint in WRONG[key]:
            if abs(value - wrong) <= 0.01 * wrong:
                return Verdict(False, expected, f"{what}: {value:g}, which is {words}", hint)
        more = "too many" if value > true[key] else "too few"
        hint = "Write down when each of the six finishes its first batch, and when its second one begins."
        return Verdict(False, expected, f"{what}: {value:g}, {more}", hint)
    return Verdict(True, expected, ", ".join(f"{what}: {answer[key]:g}" for key, what in ASKED.items()))


# -- 02.2 ----------------------------------------------------------------------------------------------------------
LR = 0.3
Worker = Callable[[int, nn.Module, list[Batch], list[Any], Callable[[], None], float], None]


def _small() -> nn.Module:
    """The replica with which every worker begins, in float64."""
    with seeded(2):
        return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).double()


def _rounds(sizes: Sequence[int], rounds: int) -> list[list[Batch]]:
    """For each worker its batches, one for each round; ``sizes``: rows of each worker's batch."""
    with seeded(3):
        return [
            [(torch.randn(rows, 5, dtype=torch.float64), torch.randint(4, (rows,))) for _ in range(rounds)]
            for rows in sizes
        ]


def _train(worker: Worker, sizes: Sequence[int], rounds: int, late: Sequence[float]) -> tuple[list[nn.Module], Any]:
    """Run the workers on the virtual clock: a forward pass takes 1 s, and ``late`` s pass before one sees the barrier
    open.  Returns the replicas, and how often each came to the barrier.

    Raises: `ProgramError`, what a worker raised or a deadlock.
    """
    clock, count = VirtualClock(), len(sizes)
    replicas, board, met = [_small() for _ in sizes], [None] * count, [0] * count
    batches, barrier = _rounds(sizes, rounds), clock.barrier(count)

    def meet(i: int) -> None:
        met[i] += 1
        barrier.wait()
        clock.sleep(late[i])

    for replica in replicas:
        replica.register_forward_pre_hook(lambda module, inputs: clock.sleep(1.0))
    bodies = [partial(worker, i, replicas[i], batches[i], board, partial(meet, i), LR) for i in range(count)]
    clock.run([Program(i, body, index=i) for i, body in enumerate(bodies)])
    return replicas, met


def _twin(kind: str, sizes: Sequence[int], rounds: int) -> nn.Module:
    """One model that is given all workers' batches: "big", as one; or as a mistaken worker would have it."""
    model = _small()
    for batches in zip(*_rounds(sizes, rounds)):
        if kind == "big":
            x, y = (torch.cat(parts) for parts in zip(*batches))
            loss = F.cross_entropy(model(x), y)
        else:
            losses = [F.cross_entropy(model(x), y) for x, y in batches]
            weights = {
                "sum": [1.0] * len(sizes),
                "mean": [1 / len(sizes)] * len(sizes),
                "rows": [float(len(y)) for _, y in batches],
            }[kind]
            loss = torch.stack([weight * one for weight, one in zip(weights, losses)]).sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter.sub_(gradient, alpha=LR)
    return model


_same = partial(same_weights, within=1e-9)  # the order of additions differs
EVEN = (0.0, 0.0, 0.0)
CASES: list[tuple[Sequence[int], int, Sequence[float], str, str, str]] = [
    ((4, 4, 4), 1, EVEN, "three workers, equal batches, one round", "the weights are not those of one big batch",
     "Compare the update with the mean of the three gradients on the board."),
    ((2, 4, 6), 1, EVEN, "batches of 2, 4 and 6 rows", "the weights are not those of one big batch",
     "What weight does each row have in the loss of one batch of 12?"),
    ((4, 4, 4), 3, EVEN, "three rounds", "the first round is right, later ones are not",
     "What is left over from the round before?"),
    ((4, 4, 4), 3, (2.5, 0.0, 0.0), "worker 0 sees the barrier open 2.5 s after the others",
     "the replicas drift apart: worker 0 finds gradients of the next round on the board",
     "How can a worker know, before it puts its next gradient on the board, that all have read the last one?"),
    ((3, 1, 5), 4, (0.0, 3.5, 1.5), "unequal batches and late workers together", "the two do not work together",
     "What else is on the board must belong to the same round as the gradients."),
]  # fmt: skip


def _repaired(answer: Any) -> Verdict:
    expected = "replicas that stay equal, and equal to one model that is given all workers' rows as one big batch"
    if not callable(answer):
        return Verdict(False, expected, f"{answer!r}, which cannot be called", "Give the function itself.")
    for sizes, rounds, late, case, what, hint in CASES:
        try:
            replicas, met = _train(answer, sizes, rounds, late)
        except ProgramError as error:
            if isinstance(error.__cause__, Deadlock):
                hint = "Count the calls of meet() on every way through the loop: all workers need equally many."
                return Verdict(False, expected, f"{case}: every worker waits for another one", hint)
            hint = "Is everything on the board when it is read? Put it there before the barrier, read it after."
            return Verdict(False, expected, f"{case}: {error}", hint)
        if len(set(met)) > 1:
            hint = "Who does not wait goes on with what is on the board at that moment."
            return Verdict(False, expected, f"{case}: calls of meet(), worker by worker: {met}", hint)
        if all(_same(replica, _small()) for replica in replicas):
            return Verdict(False, expected, f"{case}: no weight changes", "Which line writes to the parameters?")
        if all(_same(replica, _twin("big", sizes, rounds)) for replica in replicas):
            continue
        for kind, words, more in (
            ("sum", "the gradients are added, not averaged: a step as many times too long as there are workers",
             "The mean, not the sum: otherwise more workers mean a larger learning rate."),
            ("rows", "the gradients are multiplied by their rows, and never divided by all rows",
             "The weights of the gradients have to add up to 1."),
            ("mean", "the plain mean of the gradients: a row in a small batch counts more than one in a large batch",
             "What weight does each row have in the loss of one batch of 12? Workers may put more on the board."),
        ):  # fmt: skip
            if _same(replicas[0], _twin(kind, sizes, rounds)):
                return Verdict(False, expected, f"{case}: {words}", more)
        if rounds == 1 and not _same(replicas[0], replicas[1]):
            what, hint = "each replica has gone its own way", "Whose gradients does a worker use for its write?"
        return Verdict(False, expected, f"{case}: {what}", hint)
    return Verdict(True, expected, f"equal to one big batch in {len(CASES)} cases")


# -- 02.3 ----------------------------------------------------------------------------------------------------------
FACTORS = (1, 1, 2, 4)  # how many times slower each of the four workers is
BIG, START, ROW = 240, 1.0, 0.05  # rows of one update; virtual s of a worker for beginning a batch, and for each row


def _shares(answer: Any) -> Verdict:
    expected = f"four whole numbers of rows, {BIG} together, with which the workers wait for at most 2 % of their time"
    if not isinstance(answer, (list, tuple)) or len(answer) != len(FACTORS):
        return Verdict(False, expected, f"{answer!r}", "Give a list of four numbers, worker 0 first.")
    if any(isinstance(rows, bool) or not isinstance(rows, int) or rows < 1 for rows in answer):
        return Verdict(False, expected, f"{answer!r}", "Each worker takes at least one row, and no part of one.")
    if sum(answer) != BIG:
        return Verdict(False, expected, f"{sum(answer)} rows", f"The update is to be that of a batch of {BIG}.")
    seconds = [factor * (START + ROW * rows) for factor, rows in zip(FACTORS, answer)]
    slowest = max(seconds)
    waiting = 1 - sum(seconds) / (len(seconds) * slowest)
    yours = f"batch times {', '.join(f'{s:.2f}' for s in seconds)} s: a round of {slowest:.2f} s, {waiting:.1%} waiting"
    if waiting <= 0.02:
        return Verdict(True, expected, yours)
    last = seconds.index(slowest)
    speeds = [BIG / factor / sum(1 / other for other in FACTORS) for factor in FACTORS]
    if len(set(answer)) == 1:
        hint = "Equal batches make the fast wait for the slow. Who should take more rows?"
    elif all(abs(rows - share) <= 1 for rows, share in zip(answer, speeds)):
        hint = "Rows in proportion to the speeds would do if a batch without rows took no time. Here it takes 1 s."
    elif answer[-1] > answer[0]:
        hint = "A worker that is slower should take fewer rows, not more."
    else:
        hint = f"Worker {last} is the last at the barrier: give some of its rows to the others."
    return Verdict(False, expected, yours, hint)


EXERCISES = [
    Exercise("02.1", "Six workers, two of them slow", "predict", 10, _throughput),
    Exercise("02.2", "A synchronous worker with three faults", "repair", 30, _repaired),
    Exercise("02.3", "Batches so that nobody waits", "design", 10, _shares, graded=False),
]
