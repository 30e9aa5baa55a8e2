"""What lesson 03 measures: counters and tensors that two threads write at once, and what of it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..result import Result
from ..tasks import Task


class Spent(NamedTuple):
    """How long threads took together, in seconds, and how many processor cores they had meanwhile, on average."""

    seconds: float
    cores: float


def together(body: Callable[[], None], threads: int = 2) -> Spent:
    """Run ``body`` in several threads that begin at the same moment, and wait for all of them."""
    begin = threading.Barrier(threads)

    def run() -> None:
        torch.set_num_threads(1)  # in each thread: torch would else use all cores for one of them
        begin.wait()
        body()

    crew = [threading.Thread(target=run) for _ in range(threads)]
    seconds, busy = time.perf_counter(), time.process_time()
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    seconds, busy = time.perf_counter() - seconds, time.process_time() - busy
    return Spent(seconds, busy / seconds)


class Counter:
    """A number that two threads count up."""

    value = 0


def count_in_line(counter: Counter, times: int) -> None:
    """Count up; read, add and store stand in one line."""
    for _ in range(times):
        counter.value += 1


def successor(number: int) -> int:
    """The next number."""
    return number + 1


def count_with_a_call(counter: Counter, times: int) -> None:
    """Count up; between read and store a Python function is called."""
    for _ in range(times):
        counter.value = successor(counter.value)


def lost_counts(count: Callable[[Counter, int], None], times: int = 300_000) -> float:
    """The share of counts that are missing after two threads have each counted ``times`` times."""
    counter = Counter()
    together(lambda: count(counter, times))
    return 1 - counter.value / (2 * times)


def add_in_python() -> None:
    """One call that computes for a tenth of a second or so with the GIL held."""
    sum(range(5_000_000))


def multiply_in_torch() -> None:
    """One call of about that length in torch: a product of two matrices."""
    torch.ones(1000, 1000) @ torch.ones(1000, 1000)


class Beside(NamedTuple):
    """Seconds that a piece of work took, and the longest pause of a thread beside it that always wanted to go on."""

    seconds: float
    pause: float


def beside(work: Callable[[], None]) -> Beside:
    """Do ``work`` in one thread, while another one looks at its watch again and again."""
    over, took, longest = threading.Event(), 0.0, 0.0
    roles = ["watch", "work"]

    def body() -> None:
        nonlocal took, longest
        if roles.pop() == "work":
            time.sleep(0.01)  # the other one is at it now
            start = time.perf_counter()
            work()
            took = time.perf_counter() - start
            over.set()
        last = time.perf_counter()
        while not over.is_set():
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    together(body)
    return Beside(took, longest)


class Additions(NamedTuple):
    """Two threads that added ones to one tensor.

    made: additions of whole tensors.  lost: the share of element updates that are missing.  period: seconds from one
    addition of a thread to its next.  cores: that they had, on average.
    """

    made: int
    lost: float
    period: float
    cores: float


def lost_additions(size: int, seconds: float) -> Additions:
    """Two threads add ones to one tensor of ``size`` elements, without a lock, for that long; then it is counted."""
    shared, made = torch.zeros(size), []

    def add() -> None:
        ones, count, end = torch.ones(size), 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(10):
                shared.add_(ones)
            count += 10
        made.append(count)

    spent = together(add)
    return Additions(sum(made), 1 - shared.double().mean().item() / sum(made), seconds * 2 / sum(made), spent.cores)


LR = 2.0**-20  # a power of two: the weights below are exact up to 2**24 updates


def countable(task: Task) -> Task:
    """The same work with a gradient of exactly one for each weight, and weights that begin at zero.

    After training with learning rate `LR`, a weight is ``-LR`` times the number of updates it holds.
    """

    def model() -> nn.Module:
        made: nn.Module = task.model()
        for parameter in made.parameters():
            nn.init.zeros_(parameter)
        return made

    def loss(module: nn.Module, batch: Any) -> Tensor:
        total: Tensor = sum(parameter.sum() for parameter in module.parameters())  # type: ignore[assignment]
        return total + 0 * task.loss(module, batch)

    return Task(model, task.train, task.test, loss, name=f"{task.name}, countable")


def lost_updates(run: Result) -> float:
    """The share of element updates that are missing after a `countable` task was trained."""
    weights = torch.cat([parameter.detach().double().flatten() for parameter in run.model.parameters()])
    return 1 - (weights.mean().item() / -LR) / run.updates


def stale_share(run: Result) -> float:
    """The share of a run's writes whose staleness is at least 1."""
    staleness = run.staleness()
    return 1 - staleness[0] / sum(staleness.values())
