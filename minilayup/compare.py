"""Several methods on one task, from the same initial weights and for the same number of samples, over several seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engine import Threads, Virtual, train
from .errors import ArgumentError, choose, number, positive_int
from .methods.base import Method
from .preflight import check_seeds, check_slow
from .result import Result
from .rules import Rule, Schedule
from .run import Diverged
from .table import Table
from .tasks import Task
from .transport import Link

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class Comparison:
    """The runs of several methods: ``results[method]`` has one `Result` for each seed.

    Attributes:
        title: what was compared, under which conditions.
        target: the score whose samples, updates and seconds the table gives.
        notes: sentences below the table.
        diverged: {method: what each of its diverged runs said}; such runs are in no mean.
    """

    title: str
    results: dict[str, list[Result]]
    target: float | None = None
    notes: list[str] = field(default_factory=list)
    diverged: dict[str, list[str]] = field(default_factory=dict)

    def table(self) -> Table:
        """One row a method: mean over the seeds, ± the standard deviation where it matters."""
        first = next((runs[0] for runs in self.results.values() if runs), None)
        if first is None:
            return Table(f"{self.title}: no run was finished", ["method"], [])
        unit, metric = first.unit, first.metric
        aim = "" if self.target is None else f" to {_score(self.target, metric)}"
        columns = ["method", "threads", f"samples/{unit}", unit]
        if self.target is not None:
            columns += [f"{unit}{aim}", f"updates{aim}", f"samples{aim}"]
        columns += [f"final {metric}", "staleness mean", "max", "drift", "MB put", "lr"]
        rows = [self._row(name, runs) for name, runs in self.results.items() if runs]
        seeds = "/".join(map(str, sorted({len(runs) for runs in self.results.values() if runs})))
        means = "One seed" if seeds == "1" else f"Mean over {seeds} seeds, ± standard deviation"
        notes = [*self.notes, f"{means}. Times in {unit}."]
        for name, said in self.diverged.items():
            notes.append(
                f"{name}: {len(said)} run{'s' * (len(said) > 1)} diverged, in no mean above. The first: {said[0]}"
            )
        updates = {runs[0].updates / runs[0].samples for runs in self.results.values() if runs}
        if max(updates) > 1.5 * min(updates):
            notes.append(
                "Updates for each sample differ: a synchronous round of N workers is one update where the others make "
                "N, so at equal learning rates it learns less from the same samples. LayUp's N updates each move one "
                "replica of N, and its mean model moves about as far as the synchronous one."
            )
        return Table(self.title, columns, rows, notes)

    def _row(self, name: str, runs: list[Result]) -> list[str]:
        row = [name, str(runs[0].threads), f"{_mean(r.samples_per_second for r in runs):,.0f}"]
        row.append(_spread([r.seconds for r in runs], ".2f"))
        if self.target is not None:
            for axis in ("seconds", "updates", "samples"):
                values = [r.to_target(self.target, axis) for r in runs]
                reached = [v for v in values if math.isfinite(v)]
                text = f"{_mean(reached):,.{2 if axis == 'seconds' else 0}f}" if reached else "never"
                row.append(text + (f" ({len(reached)} of {len(values)})" if 0 < len(reached) < len(values) else ""))
        percent = runs[0].metric == "accuracy"
        row.append(
            _spread([r.score * (100 if percent else 1) for r in runs], ".1f" if percent else ".4g", "%" * percent)
        )
        if runs[0].trace.on:
            row += [
                f"{_mean(r.trace.mean_staleness() for r in runs):.2f}",
                str(max(r.trace.max_staleness() for r in runs)),
            ]
        else:
            row += ["not traced", "not traced"]
        row += [f"{_mean(r.points[-1].drift for r in runs):.1e}", f"{_mean(r.bytes_put for r in runs) / 1e6:,.1f}"]
        return [*row, f"{runs[0].settings['lr']:g}"]

    def plot(self, x: str = "samples", ax: Axes | None = None) -> Axes:
        """The methods' mean curves against "samples", "updates" or "seconds", with the range over seeds as a band."""
        import numpy as np
        from matplotlib import pyplot as plt

        from .picture import STYLES

        ax = ax or plt.subplots(figsize=(6.4, 4))[1]
        for (name, runs), (colour, marker, dash) in zip(self.results.items(), STYLES * 9):
            if not runs:
                continue
            curves = [run.curve(x) for run in runs]
            grid = np.linspace(0, min(xs[-1] for xs, _ in curves), 11)
            ys = np.array([np.interp(grid, *curve) for curve in curves])
            ax.plot(grid, ys.mean(0), color=colour, marker=marker, linestyle=dash, markersize=4, label=name)
            ax.fill_between(grid, ys.min(0), ys.max(0), color=colour, alpha=0.15, linewidth=0)
        first = next(runs[0] for runs in self.results.values() if runs)
        ax.set_xlabel(f"{x} ({first.unit})" if x == "seconds" else x)
        ax.set_ylabel(f"test {first.metric} of the mean model")
        ax.legend()
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        runs = {name: [result.to_dict() for result in results] for name, results in self.results.items()}
        return {
            "title": self.title,
            "target": self.target,
            "notes": self.notes,
            "diverged": self.diverged,
            "results": runs,
        }

    def save(self, path: str | Path) -> Path:
        """Write `to_dict` as JSON."""
        path = Path(path)
        path.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
        return path


def _mean(values: Any) -> float:
    return statistics.fmean(values)


def _spread(values: Sequence[float], form: str, unit: str = "") -> str:
    spread = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{form}}{unit}{spread}"


def _score(value: float, metric: str) -> str:
    return f"{value:.0%}" if metric == "accuracy" else f"{value:g}"


def compare(
    task: Task,
    methods: Sequence[Method] | Mapping[str, Method],
    *,
    samples: int,
    seeds: int | Sequence[int] = 3,
    target: float | None = None,
    batch_size: int = 64,
    rule: Rule | Mapping[str, Rule] | None = None,
    schedule: Schedule | None = None,
    engine: str | Threads | Virtual = "threads",
    slow: Mapping[Any, float] | None = None,
    link: Link | None = None,
    trace: bool = True,
    evaluate_every: int | None = None,
    progress: bool = True,
    title: str | None = None,
    finished: Callable[[Comparison, str, int], None] = lambda comparison, name, seed: None,
    into: Comparison | None = None,
) -> Comparison:
    """Train every method for the same number of samples from the same initial weights, once for each seed.

    Args:
        methods: a list, or {name: method} to name them.
        samples: the budget of every run.
        seeds: how many (0, 1, …), or which.
        target: the score whose time the table gives; it does not end a run.
        rule: one for all, or {name: rule}.
        slow, link, engine, …: as in `train`; ``slow`` applies to a method only where it has that worker or group.
        finished: called after each run.
        into: a comparison to fill, so that an interrupted one keeps what was finished.
    """
    named = _named(methods)
    _check_names(named, rule, slow or {})
    positive_int("samples", samples)
    if target is not None:
        number("target", target, 0, open_low=True)
    chosen = check_seeds(seeds)
    where = f"{task.name}, {samples:,} samples, {'all equal' if not slow else f'slowed: {dict(slow)}'}"
    comparison = Comparison(title or where, {}, target) if into is None else into
    comparison.results.update({name: [] for name in named})
    for seed in chosen:  # seeds outside, methods inside: what disturbs the machine disturbs all methods
        for name, method in named.items():
            try:
                result = train(
                    task,
                    method,
                    samples=samples,
                    batch_size=batch_size,
                    rule=rule.get(name) if isinstance(rule, Mapping) else rule,
                    schedule=schedule,
                    engine=engine,
                    seed=seed,
                    slow={key: factor for key, factor in (slow or {}).items() if key in method.slowable()},
                    link=link,
                    trace=trace,
                    evaluate_every=evaluate_every,
                    progress=progress,
                )
                comparison.results[name].append(result)
            except Diverged as error:
                comparison.diverged.setdefault(name, []).append(f"seed {seed}: {error}")
            finished(comparison, name, seed)
    return comparison


def _named(methods: Any) -> dict[str, Method]:
    """The methods by their names; refuses what is no method, and two of one name."""
    if isinstance(methods, Method):
        raise ArgumentError(f"methods={methods!s} is one method: give a list, [{methods!s}], or use minilayup.train")
    pairs = list(methods.items() if isinstance(methods, Mapping) else ((str(method), method) for method in methods))
    if not pairs:
        raise ArgumentError("methods is empty: give at least one, such as minilayup.SyncSGD(2)")
    for _, method in pairs:
        if not isinstance(method, Method):
            raise ArgumentError(f"methods: {method!r} is no method; give objects such as minilayup.LayUp(workers=2)")
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ArgumentError(f"methods: {twice[0]} is there twice; give {{name: method}} to tell them apart")
    return dict(pairs)


def _check_names(named: dict[str, Method], rule: Any, slow: Mapping[Any, float]) -> None:
    """Refuse rules for methods that are not there, and slowing down what no method has."""
    if isinstance(rule, Mapping):
        for name in rule:
            choose("rule", name, named)
    check_slow(slow, set().union(*(method.slowable() for method in named.values())))
