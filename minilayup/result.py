"""What a run leaves: the mean model, its curve, its counts, its trace."""

from __future__ import annotations

import json
import math
import os
import platform
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .errors import choose
from .trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = ("samples", "updates", "seconds")


@dataclass(frozen=True)
class Point:
    """One evaluation: the mean model on the test set, and what the run was at then.

    seconds: the clock's.  loss: mean training loss since the point before.  score: accuracy of the mean model (for
    tasks without one, its test loss); score_worker0: of worker 0's replica alone.  drift: mean squared distance of the
    replicas from the mean model, over its squared norm; drift_layers: the same, layer by layer.
    """

    samples: int
    updates: int
    seconds: float
    loss: float
    score: float
    score_worker0: float
    drift: float
    drift_layers: tuple[float, ...]


@dataclass
class Result:
    """One finished run.

    Attributes:
        method: the constructor call, as text.  threads: programs that ran.  workers: data-parallel participants.
        unit: "s" or "virtual s": which clock ``seconds`` are from.
        samples, updates, seconds: trained in total, and how long it took (evaluation afterwards not counted).
        points: the evaluations, `Point`.  metric: what their score is, "accuracy" or "loss".
        bytes_put: sent between replicas, answers and all-reduces included.  merges, skipped, lost: counts of puts.
        evaluated: "afterwards" from snapshots, or "on the fly" (then real seconds include it).
        masses: [worker][layer], each replica's weight in the mean model, as the exchange rule conserves it.
        settings: everything needed to run it again.
        model: the mean model.
        trace: the events; empty with ``trace=False``.
    """

    method: str
    task: str
    threads: int
    workers: int
    unit: str
    samples: int
    updates: int
    seconds: float
    points: list[Point]
    metric: str
    bytes_put: int
    merges: int
    skipped: int
    lost: int
    evaluated: str
    masses: list[list[float]]
    settings: dict[str, Any]
    model: nn.Module = field(repr=False)
    trace: Trace = field(repr=False)

    @property
    def score(self) -> float:
        """The mean model's accuracy (or loss) at the end."""
        return self.points[-1].score

    @property
    def samples_per_second(self) -> float:
        """Training samples a second of the run's clock."""
        return self.samples / self.seconds if self.seconds else math.nan

    def to_target(self, target: float, x: str = "seconds") -> float:
        """Where the mean model's score first reaches ``target``: linear between evaluations; infinity if it never does.

        Args:
            x: "samples", "updates" or "seconds".
        """
        choose("x", x, AXES)
        before: Point | None = None
        for point in self.points:
            if point.score >= target if self.metric == "accuracy" else point.score <= target:
                here = float(getattr(point, x))
                if before is None or point.score == before.score:
                    return here
                share = (target - before.score) / (point.score - before.score)
                return float(getattr(before, x)) + share * (here - float(getattr(before, x)))
            before = point
        return math.inf

    def summary(self) -> str:
        """One paragraph in words and numbers, with the clock and the threads they come from."""
        last = self.points[-1]
        lines = [
            f"{self.method} on {self.task}: test {self.metric} "
            f"{last.score:{'.1%' if self.metric == 'accuracy' else '.4g'}} (mean model) after {self.samples:,} samples",
            f"  {self.seconds:.2f} {self.unit}, {self.samples_per_second:,.0f} samples/{self.unit}, "
            f"{self.threads} thread{'s' * (self.threads > 1)}, {self.updates:,} updates; evaluated {self.evaluated}",
        ]
        if self.workers > 1 and len(self.masses) > 1:
            lines.append(
                f"  worker 0 alone {last.score_worker0:.4g}, drift {last.drift:.2g}, {self.bytes_put / 1e6:,.1f} MB put"
            )
        if self.trace.on:
            lines.append(f"  staleness: mean {self.trace.mean_staleness():.2f}, max {self.trace.max_staleness()}")
        if self.lost or self.skipped:
            lines.append(f"  {self.lost} messages lost, {self.skipped} puts skipped")
        return "\n".join(lines)

    def curve(self, x: str = "samples") -> tuple[list[float], list[float]]:
        """The score against "samples", "updates" or "seconds"."""
        choose("x", x, AXES)
        return [float(getattr(p, x)) for p in self.points], [p.score for p in self.points]

    def plot(self, x: str = "samples", ax: Axes | None = None) -> Axes:
        """Draw the score against "samples", "updates" or "seconds" with matplotlib; returns the axes."""
        from matplotlib import pyplot as plt

        ax = ax or plt.subplots()[1]
        xs, ys = self.curve(x)
        ax.plot(xs, ys, marker="o", label=self.method)
        ax.set_xlabel(f"{x} ({self.unit})" if x == "seconds" else x)
        ax.set_ylabel(f"test {self.metric}")
        return ax

    def staleness(self) -> Counter[int]:
        """How many writes had which staleness, all layers together."""
        return self.trace.staleness()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model and the events, ready for JSON; what is not finite (or never was) is None."""
        plain = {k: v for k, v in self.__dict__.items() if k not in ("model", "trace", "points")}
        plain["points"] = [asdict(point) for point in self.points]
        plain["staleness"] = {str(tau): count for tau, count in sorted(self.staleness().items())}
        return dict(finite(plain))

    def save(self, path: str | Path) -> Path:
        """Write `to_dict` as JSON."""
        path = Path(path)
        path.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
        return path


def finite(plain: Any) -> Any:
    """The same dicts and lists with None for NaN and infinity, which JSON does not have."""
    if isinstance(plain, dict):
        return {key: finite(value) for key, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [finite(value) for value in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def machine() -> dict[str, Any]:
    """What a result depends on besides its arguments: versions, processor, cores."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("minilayup")
    except PackageNotFoundError:
        own = "not installed"
    return {
        "minilayup": own,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
