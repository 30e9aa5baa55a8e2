"""The main job: five methods, same model, same initial weights, same number of samples, side by side on real data.

Fair by construction: each method's learning rate comes from one grid by one rule (the smallest within one standard
error of the best mean final accuracy, over seeds that are not used in the race), found by ``bench/tune_race.py`` and
stored in ``data/results/race_rates.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .compare import Comparison, compare
from .datasets import shipped_folder
from .engine import Threads, Virtual
from .errors import ArgumentError, DataError, positive_int
from .methods import PDASGD, SGD, Hogwild, LayUp, Method, SyncSGD
from .result import machine
from .rules import SGD as SGDRule
from .rules import Rule, WarmUp
from .tasks import fashion_mnist

SLOWDOWN = 4.0  # of the last worker, in the second half of the race
TARGET = 0.80
WARM_UP = 2_000  # samples, for all: right after initialisation stale gradients do most harm
RATES = "results/race_rates.json"


def default_workers() -> int:
    """As many workers as a race is tuned for and this machine has cores: 2 or 4."""
    return 4 if machine()["cores"] >= 4 else 2


def contestants(workers: int) -> dict[str, Method]:
    """The five methods with ``workers`` threads each (SGD has one).

    PD-ASGD runs without slack, its most stable setting: with one waiting place its staleness reaches 2 and halves the
    learning rate it bears.
    """
    if positive_int("workers", workers) < 2:
        raise ArgumentError("a race needs workers >= 2: with one, every method is SGD")
    return {
        "SGD": SGD(),
        "SyncSGD": SyncSGD(workers),
        "Hogwild!": Hogwild(workers),
        f"PD-ASGD 1F:{workers - 1}B": PDASGD(forward=1, backward=workers - 1, slack=0),
        "LayUp": LayUp(workers),
    }


def tuned_rates(workers: int, condition: str) -> tuple[dict[str, Rule], str]:
    """The stored learning rate of each contestant, and a sentence that says where it comes from.

    Args:
        condition: "equal" or "slowed".
    """
    path = shipped_folder() / RATES
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        tuned_for = min(map(int, stored["workers"]), key=lambda n: (abs(n - workers), n))
        rates = list(stored["workers"][str(tuned_for)][condition]["rates"].values())
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"the tuned learning rates cannot be read from {path} ({error}): run bench/tune_race.py"
        ) from None
    grid = ", ".join(f"{rate:g}" for rate in stored["grid"])
    words = f"Learning rates: {stored['rule']}; grid {grid}, seeds {stored['seeds']}, {condition} workers"
    words += f", model {stored['model']}, {stored['samples']:,} samples"
    if tuned_for != workers:
        words += f"; tuned for {tuned_for} workers, not for {workers}"
    return dict(zip(contestants(workers), (SGDRule(lr=rate) for rate in rates))), words + "."


@dataclass
class Race:
    """A race's comparisons, one a condition, and everything needed to run it again."""

    arguments: dict[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def finished(self) -> list[str]:
        """The runs that were finished, in words."""
        return [
            f"{comparison.title}: {name}, {len(runs)} seed{'s' * (len(runs) != 1)}"
            for comparison in self.comparisons
            for name, runs in comparison.results.items()
            if runs
        ]

    def save(self, path: Path) -> Path:
        """Write arguments, machine and all results as JSON."""
        plain = {
            "arguments": self.arguments,
            "machine": machine(),
            "notes": self.notes,
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
        }
        path.write_text(json.dumps(plain, indent=1, allow_nan=False), encoding="utf-8")
        return path


def run_race(
    race: Race,
    *,
    workers: int = 2,
    model: str = "cnn",
    samples: int = 16_000,
    seeds: int = 3,
    engine: str | Threads | Virtual = "threads",
    equal_rate: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Comparison]:
    """Fill ``race`` run by run, and yield each condition's comparison when it is complete.

    Args:
        equal_rate: one learning rate for all instead of the tuned ones: then synchronous SGD looks worse than it is,
            since N workers make N times fewer updates from the same samples.
        progress: told what runs next, in words.
    """
    task = fashion_mnist(model=model)
    methods = contestants(workers)
    for condition, slow in (("equal", {}), ("slowed", {workers - 1: SLOWDOWN})):
        if equal_rate is None:
            rules, words = tuned_rates(workers, condition)
        else:
            rules = {name: SGDRule(lr=equal_rate) for name in methods}
            words = f"One learning rate for all, {equal_rate:g}, by request: not tuned for any method."
        words += f" Warm-up over {WARM_UP:,} samples."
        speed = "all workers equally fast" if not slow else f"thread {workers - 1} {SLOWDOWN:g} times slower"
        comparison = Comparison(f"{task.name}: {speed}", {}, TARGET, notes=[words])
        race.comparisons.append(comparison)
        for name in methods:
            comparison.results[name] = []
        compare(
            task,
            methods,
            samples=samples,
            seeds=seeds,
            rule=rules,
            schedule=WarmUp(WARM_UP),
            engine=engine,
            slow=slow,
            progress=False,
            finished=lambda comparison, name, seed: progress(f"{comparison.title}: {name}, seed {seed}"),
            into=comparison,
        )
        yield comparison
