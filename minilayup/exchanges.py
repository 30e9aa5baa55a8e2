"""Which exchange rule should LayUp use by default?  Every rule under the conditions in which they differ, on the CNN.

On the virtual clock, so that anyone gets the same numbers.  The learning rate of each rule and condition is the best on
a grid by one seed that the comparison does not use.  The judge is the time to a target accuracy of the mean model.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass

from .engine import Virtual, train
from .errors import positive_int
from .methods import LayUp, Method, SyncSGD
from .result import Result, machine
from .rules import SGD
from .run import Diverged
from .table import Table
from .tasks import Task, fashion_mnist
from .transport import Link

GRID = (0.05, 0.1, 0.2)
TUNING_SEED = 100
BATCH = 32
EVALUATIONS = 12  # of each run


@dataclass(frozen=True)
class Condition:
    """How unlike the workers are."""

    name: str
    skew: float
    slowest: float
    target: float
    latency: float = 1.0  # virtual seconds; a batch takes 3


CONDITIONS = (
    Condition("iid, equal", 0.0, 1.0, 0.75),
    Condition("iid, one 10x slower", 0.0, 10.0, 0.75),
    Condition("Dirichlet, equal", 0.75, 1.0, 0.70),
    Condition("Dirichlet, one 10x slower", 0.75, 10.0, 0.70),
    Condition("label-sorted, equal", 1.0, 1.0, 0.55),
    Condition("label-sorted, one 10x slower", 1.0, 10.0, 0.55),
)


def rules(workers: int) -> dict[str, Method]:
    """Who is compared: LayUp's exchange rules, its probabilities, and the two controls."""
    return {
        "average, p 0.25": LayUp(workers, exchange="average", probability=0.25),
        "average, p 0.5": LayUp(workers, exchange="average", probability=0.5),
        "average, p 1": LayUp(workers, exchange="average", probability=1.0),
        "push-sum, p 1": LayUp(workers, exchange="push-sum", probability=1.0),
        "push-sum by rate, p 1": LayUp(workers, exchange="push-sum", peer="by-rate", probability=1.0),
        "relaxed, p 1": LayUp(workers, exchange="relaxed", probability=1.0),
        "increment, p 1": LayUp(workers, exchange="increment", probability=1.0),
        "cumulative, p 1": LayUp(workers, exchange="cumulative", probability=1.0),
        "no exchange": LayUp(workers, probability=0.0),
        "sync SGD": SyncSGD(workers),
    }


def run_one(task: Task, method: Method, condition: Condition, lr: float, seed: int, samples: int) -> Result | None:
    """One virtual run; None if it diverged."""
    slow = {method.workers - 1: condition.slowest} if condition.slowest > 1 else {}
    link = Link(latency=condition.latency) if condition.latency else None
    try:
        return train(
            task.skewed(condition.skew),
            method,
            samples=samples,
            batch_size=BATCH,
            rule=SGD(lr=lr),
            engine=Virtual(),
            seed=seed,
            slow=slow,
            link=link,
            trace=False,
            evaluate_every=samples // EVALUATIONS,
            progress=False,
        )
    except Diverged:
        return None


def best_rate(task: Task, method: Method, condition: Condition, samples: int) -> float:
    """The rate on the grid whose mean score along the curve is best, at the tuning seed."""

    def area(lr: float) -> float:
        result = run_one(task, method, condition, lr, TUNING_SEED, samples)
        return statistics.fmean(point.score for point in result.points) if result else 0.0

    return max(GRID, key=area)


def compare_exchanges(
    workers: int = 4, samples: int = 20_000, seeds: int = 2, progress: Callable[[str], None] = lambda text: None
) -> tuple[Table, str]:
    """Run every rule under every condition.

    Returns: a table of the mean virtual seconds to the target (and, in brackets, the final accuracy), and everything
        as JSON.
    """
    positive_int("seeds", seeds), positive_int("workers", workers, at_least=2)
    positive_int("samples", samples, at_least=EVALUATIONS)
    task = fashion_mnist(model="cnn")
    never = 5 * samples / BATCH  # virtual seconds that a run which does not reach the target counts as
    stored: dict[str, dict[str, object]] = {}
    rows: list[list[str]] = []
    for name, method in rules(workers).items():
        row, stored[name], logs = [name], {}, []
        for condition in CONDITIONS:
            lr = best_rate(task, method, condition, samples)
            results = [run_one(task, method, condition, lr, seed, samples) for seed in range(seeds)]
            times = [r.to_target(condition.target) if r else math.inf for r in results]
            scores = [r.score if r else 0.0 for r in results]
            reached = statistics.fmean(times)
            logs.append(math.log(min(reached, never)))
            text = f"{reached:,.0f}" if math.isfinite(reached) else "never"
            row.append(f"{text} ({statistics.fmean(scores):.0%})")
            finite = [t if math.isfinite(t) else None for t in times]
            stored[name][condition.name] = {"lr": lr, "seconds_to_target": finite, "final_accuracy": scores}
        row.append(f"{math.exp(statistics.fmean(logs)):,.0f}")
        rows.append(row)
        progress("   ".join(row))
    columns = ["rule", *(f"{c.name}: s to {c.target:.0%}" for c in CONDITIONS), "geometric mean"]
    notes = [
        f"Virtual seconds (a batch takes 3), {workers} workers, {samples:,} samples, latency 1, {seeds} seeds; in "
        f"brackets the final accuracy. Learning rates from {GRID} at seed {TUNING_SEED}. 'never' counts as "
        f"{never:,.0f} s in the mean."
    ]
    settings = {"workers": workers, "samples": samples, "seeds": seeds, "grid": GRID, "machine": machine()}
    everything = {"settings": settings, "conditions": [asdict(c) for c in CONDITIONS], "rules": stored}
    return Table("LayUp's exchange rules on the CNN", columns, rows, notes), json.dumps(everything, indent=1)
