"""Measure what lesson 03 says about threads: lost updates, stale writes, what the GIL leaves to do at once.

    python bench/lessons/lesson_03.py [--quick]

Writes data/results/lesson03.json; takes about two minutes.  Shares are of 1, not of 100.
"""

from __future__ import annotations

import statistics
import sys
from itertools import combinations
from typing import Any

import torch
from store import rounded, write

import minilayup as lu
from minilayup.course import races
from minilayup.figures.scheduler import WRITES, interleave
from minilayup.result import machine

WINDOW = 5e-9  # seconds between an element's load and its store, about 20 cycles: assumed, not fitted
SIZES = [1, 1_000, 10_000, 100_000, 1_000_000]
COUNTS = 300_000  # of each thread
BATCH = 64


def spread(values: list[float]) -> dict[str, Any]:
    """Median, lowest, highest, mean, standard deviation, and all values."""
    found: dict[str, Any] = {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "mean": statistics.fmean(values),
        "sd": statistics.stdev(values),
        "runs": values,
    }
    return dict(rounded(found))


def additions(repetitions: int, tries: int, seconds: float) -> list[dict[str, Any]]:
    """Two threads do nothing but add ones to one tensor.

    The sizes take turns, so that a busy moment of the machine meets all of them.  Of all tries, those count in which
    the two threads had most of the processor's cores; how much they had is stored beside what was lost.
    """
    found: dict[int, list[races.Additions]] = {size: [] for size in SIZES}
    for _ in range(tries):
        for size in SIZES:
            found[size].append(races.lost_additions(size, seconds))
    rows = []
    for size, all_runs in found.items():
        runs = sorted(all_runs, key=lambda run: run.cores)[-repetitions:]
        period = statistics.median(run.period for run in runs)
        lost = spread([run.lost for run in runs])
        rows.append(
            {
                "size": size,
                "lost": lost,
                "none_lost": sum(run.lost == 0 for run in runs),
                "made": sum(run.made for run in runs),
                "period_us": rounded(1e6 * period),
                "cores": spread([run.cores for run in runs]),
                "predicted": rounded(WINDOW / period),
                "ratio": rounded(lost["median"] / (WINDOW / period)),
            }
        )
    return rows


def counters(repetitions: int) -> dict[str, Any]:
    """A number counted up by two threads, in one line and with a call between read and store."""
    kinds = {"in_line": races.count_in_line, "with_a_call": races.count_with_a_call}
    return {
        "counts": 2 * COUNTS,
        **{
            name: spread([races.lost_counts(count, COUNTS) for _ in range(repetitions)])
            for name, count in kinds.items()
        },
    }


def beside(repetitions: int) -> dict[str, Any]:
    """One call of Python's, or of torch's, and for how much of it another thread stood still at a stretch."""
    found = {}
    for name, work in (("python", races.add_in_python), ("torch", races.multiply_in_torch)):
        runs = [races.beside(work) for _ in range(repetitions)]
        found[name] = {
            "ms": rounded(1e3 * statistics.median(run.seconds for run in runs)),
            "pause_ms": rounded(1e3 * statistics.median(run.pause for run in runs)),
            "share": spread([run.pause / run.seconds for run in runs]),
        }
    return found


def training(model: str, seeds: int, updates: int, clock: str) -> dict[str, Any]:
    """Hogwild with two threads: stale writes and accuracy beside one thread's; on real threads also lost updates."""
    task = lu.tasks.fashion_mnist(model)
    engine = lu.Virtual() if clock == "virtual" else lu.Threads()

    def train(task: lu.Task, method: Any, lr: float, seed: int) -> lu.Result:
        return lu.train(
            task, method, samples=updates * BATCH, batch_size=BATCH, rule=lu.rules.SGD(lr=lr), engine=engine,
            seed=seed, progress=False,
        )  # fmt: skip

    runs = [train(task, lu.Hogwild(2), 0.05, seed) for seed in range(seeds)]
    alone = [train(task, lu.SGD(), 0.05, seed) for seed in range(seeds)]
    found = {
        "updates": updates,
        "stale": spread([races.stale_share(run) for run in runs]),
        "staleness": spread([run.trace.mean_staleness() for run in runs]),
        "accuracy": spread([run.score for run in runs]),
        "accuracy_alone": spread([run.score for run in alone]),
        "seconds_a_batch": spread([2 * run.seconds / updates for run in runs]),
    }
    if clock == "threads":
        counted = [train(races.countable(task), lu.Hogwild(2), races.LR, seed) for seed in range(seeds)]
        found["weights"] = sum(p.numel() for p in counted[0].model.parameters())
        found["lost"] = spread([races.lost_updates(run) for run in counted])
        found["ever_lost"] = sum(races.lost_updates(run) > 0 for run in counted)
    return found


def all_orders(updates: int = 3) -> dict[str, Any]:
    """Every order of two threads' steps, three updates each: how many updates are lost, how many writes are stale."""
    steps = 3 * updates
    found: dict[str, Any] = {}
    for how, name in zip(WRITES, ("add", "store")):
        lost, stale = [], []
        for places in combinations(range(2 * steps), steps):
            moves = "".join("A" if k in places else "B" for k in range(2 * steps))
            taken = interleave(moves, how)
            lost.append(2 * updates - len(taken[-1].kept))
            stale.append(sum(step.staleness > 0 for step in taken))
        found[name] = {
            "orders": len(lost),
            "lost_most": max(lost),
            "lost_mean": statistics.fmean(lost),
            "stale_mean": statistics.fmean(stale),
            "some_lost": sum(n > 0 for n in lost) / len(lost),
            "some_stale": sum(n > 0 for n in stale) / len(lost),
        }
    return found


def main() -> None:
    """Measure everything and write it."""
    quick = "--quick" in sys.argv
    torch.set_num_threads(1)
    repetitions, tries, seeds, updates = (3, 4, 2, 40) if quick else (15, 60, 5, 200)
    result = {
        "settings": {
            "threads": 2,
            "repetitions": repetitions,
            "tries": tries,
            "seeds": list(range(seeds)),
            "window_ns": WINDOW * 1e9,
            "batch": BATCH,
            "shares": "of 1",
        },
        "add": additions(repetitions, tries, 0.05 if quick else 0.2),
        "counter": counters(repetitions),
        "beside": beside(repetitions),
        "threads": {model: training(model, seeds, updates, "threads") for model in ("mlp", "cnn")},
        "virtual": {model: training(model, seeds, updates, "virtual") for model in ("mlp", "cnn")},
        "orders": all_orders(),
        "machine": machine(),
    }
    write("03", result, quick)


if __name__ == "__main__":
    main()
