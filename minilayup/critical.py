"""The critical learning rate: how large may the steps be before a run no longer gets where it should?

Staleness costs stability, so this one number says how much of it a method bears.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .engine import Virtual, train
from .errors import ArgumentError, number, positive_int
from .methods.base import Method
from .preflight import check_seeds, check_type
from .rules import SGD, Rule, Schedule
from .run import Diverged
from .tasks import Task


@dataclass(frozen=True)
class Critical:
    """A method's critical learning rate, found once for each seed.

    Attributes:
        method, task: what was trained, as text.
        metric, target, samples: a run counts if its test ``metric`` is at least (a loss: at most) ``target`` after so
            many ``samples``.
        seeds: of the searches, in the order of ``brackets``.
        brackets: for each seed, the largest learning rate that reached the target, and the smallest above it that did
            not. No rate between the two was tried.
        runs: how many runs it took.
    """

    method: str
    task: str
    metric: str
    target: float
    samples: int
    seeds: tuple[int, ...]
    brackets: tuple[tuple[float, float], ...]
    runs: int

    @property
    def rates(self) -> tuple[float, ...]:
        """The critical learning rate of each seed: the lower end of its bracket."""
        return tuple(reached for reached, _ in self.brackets)

    @property
    def mean(self) -> float:
        """Mean of ``rates`` over the seeds."""
        return statistics.fmean(self.rates)

    @property
    def spread(self) -> float:
        """Standard deviation of ``rates`` over the seeds; 0 with one seed."""
        return statistics.stdev(self.rates) if len(self.rates) > 1 else 0.0

    @property
    def resolution(self) -> float:
        """Width of a bracket as a fraction of its lower end, the same for all seeds: 0.04 is 4 %."""
        reached, failed = self.brackets[0]
        return failed / reached - 1

    def __str__(self) -> str:
        """One line in words and numbers."""
        sign = ">=" if self.metric == "accuracy" else "<="
        many = f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else "1 seed"
        return (
            f"{self.method} on {self.task}: critical learning rate {self.mean:.3g} ± {self.spread:.2g} ({many}, each "
            f"to {self.resolution:.1%}), for a test {self.metric} {sign} {self.target:g} after {self.samples:,} samples"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**asdict(self), "rates": self.rates, "mean": self.mean, "spread": self.spread}


def critical_rate(
    task: Task,
    method: Method,
    *,
    target: float,
    samples: int,
    low: float,
    high: float,
    seeds: int | Sequence[int] = (0, 1, 2),
    steps: int = 7,
    batch_size: int = 64,
    rule: Callable[[float], Rule] = SGD,
    schedule: Schedule | None = None,
    engine: Virtual | None = None,
    slow: Mapping[Any, float] | None = None,
) -> Critical:
    """The largest learning rate at which a run reaches ``target`` within ``samples``, by bisection in log(rate).

    A run reaches the target if its score at the end does, that is after ``samples``; on the way nothing is evaluated. A
    run that diverges does not reach it. The bisection takes for granted what holds between a rate that is large enough
    and one that is too large: below the border runs succeed, above it they fail. Each seed is searched on its own, on
    the same grid of 2^steps rates, on the virtual clock, so the same call gives the same bits.

    Workers of equal speed begin in phase, and jitter carries them apart: ``Virtual(jitter=0.3)`` within about five
    batches a worker, the default 0.1 within about twenty; until then their staleness is below what theory gives.

    Args:
        target: test accuracy, above 0 and at most 1; for a task without accuracy, a test loss above 0.
        samples: the budget of every run, in training samples.
        low, high: learning rates, the first small enough to reach the target, the second too large. Each is tried only
            if no rate between them has shown it to be so.
        seeds: how many (0, 1, …), or which.
        steps: bisections: a rate is known to a factor of (high / low)^(1 / 2^steps).
        rule: learning rate -> rule, such as ``lambda lr: rules.SGD(lr, momentum=0.9)``.
        engine: a `Virtual` clock; default ``Virtual()``.
        batch_size, schedule, slow: as in `train`.

    Raises:
        ArgumentError: for what cannot work; and, once that is known, if a run with ``low`` does not reach the target or
            one with ``high`` still does.
    """
    check_type("task", task, Task, "minilayup.tasks.fashion_mnist(), for example")
    check_type("method", method, Method, "minilayup.Hogwild(workers=2), for example")
    target = number("target", target, 0, 1 if task.accuracy else float("inf"), open_low=True)
    low = number("low", low, 0, open_low=True)
    high = number("high", high, low, open_low=True)
    positive_int("samples", samples)
    cells = 2 ** positive_int("steps", steps)
    chosen = check_seeds(seeds)
    check_type("rule", rule, Callable, "a function of the learning rate, such as rules.SGD")
    check_type(f"rule({low:g})", rule(low), Rule, "a function that returns a rule, such as rules.SGD")
    clock = Virtual() if engine is None else engine
    check_type("engine", clock, Virtual, "a virtual clock, such as minilayup.Virtual(jitter=0.3)")
    runs = 0

    def reaches(cell: int, seed: int) -> bool:
        """Whether a run at the cell's rate reaches the target."""
        nonlocal runs
        runs += 1
        try:
            result = train(
                task,
                method,
                samples=samples,
                batch_size=batch_size,
                rule=rule(rates[cell]),
                schedule=schedule,
                engine=clock,
                seed=seed,
                slow=slow,
                trace=False,
                evaluate_every=samples + batch_size * method.threads,  # at the end alone
                progress=False,
            )
        except Diverged:
            return False
        return result.score >= target if task.accuracy else result.score <= target

    rates = [low * (high / low) ** (cell / cells) for cell in range(cells)] + [high]
    brackets = []
    for seed in chosen:
        below, above = 0, cells
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (middle, above) if reaches(middle, seed) else (below, middle)
        if below == 0 and not reaches(0, seed):
            raise ArgumentError(
                f"low={low:g} does not reach {target:g} with seed {seed}, nor does any higher rate that was tried: "
                "give a lower one if that is still unstable, more samples or an easier target if it only is too slow"
            )
        if above == cells and reaches(cells, seed):
            raise ArgumentError(f"high={high:g} still reaches {target:g} with seed {seed}: give a higher one")
        brackets.append((rates[below], rates[above]))
    metric = "accuracy" if task.accuracy else "loss"
    return Critical(str(method), task.name, metric, target, samples, chosen, tuple(brackets), runs)
