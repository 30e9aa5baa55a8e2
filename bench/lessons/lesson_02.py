"""Measure what lesson 02 says: python bench/lessons/lesson_02.py [--quick] writes data/results/lesson02.json.

About five minutes on one core; ``--quick`` takes one seed and three sizes, to see that everything works, and prints.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from store import rounded, write

import minilayup as lu
from minilayup.result import machine

BATCH, LR, SAMPLES, TARGET = 16, 0.02, 12_800, 0.7
SIZES = [1, 2, 4, 8, 16, 32]
WARM_UP = 3_200  # samples, a quarter of the run
CLOCK = lu.Virtual(jitter=0)
LONG = 3_000.0  # virtual s: 1,000 batches of one worker
SIGMA = 0.3

Numbers = dict[str, Any]


def spread(values: Sequence[float]) -> Numbers:
    """Mean, standard deviation and the values themselves."""
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": rounded(statistics.fmean(values)), "std": rounded(std), "all": [rounded(v) for v in values]}


def learned(task: lu.Task, workers: int, lr: float, seeds: Sequence[int], warm_up: bool = False) -> Numbers:
    """Accuracy of so many synchronous workers after the same samples; which runs diverged; the way to the target."""
    runs, diverged = [], 0
    for seed in seeds:
        try:
            run = lu.train(
                task, lu.SyncSGD(workers), samples=SAMPLES, batch_size=BATCH, rule=lu.rules.SGD(lr=lr), engine=CLOCK,
                schedule=lu.rules.WarmUp(WARM_UP) if warm_up else None, seed=seed, trace=False, progress=False,
                evaluate_every=SAMPLES // 20,
            )  # fmt: skip
            runs.append(run)
        except lu.Diverged:
            diverged += 1
    found: Numbers = {"lr": rounded(lr), "diverged": diverged}
    if runs:
        found |= {"accuracy": spread([run.score for run in runs]), "seconds": runs[0].seconds}
        reached = [(run.to_target(TARGET), run.to_target(TARGET, "updates")) for run in runs if run.score >= TARGET]
        if len(reached) == len(seeds):
            seconds, updates = zip(*reached)
            found |= {"target_s": spread(seconds), "target_updates": spread(updates)}
    print(workers, found, flush=True)
    return found


def scaling(task: lu.Task, sizes: Sequence[int], seeds: Sequence[int]) -> Numbers:
    """The same samples in fewer, bigger updates: at one worker's learning rate, and at one that grows in proportion."""
    found: Numbers = {}
    for n in sizes:
        found[f"n{n}"] = {"workers": n, "big_batch": n * BATCH, "updates": SAMPLES // (n * BATCH)}
        found[f"n{n}"]["same"] = learned(task, n, LR, seeds)
        if n > 1:
            found[f"n{n}"]["linear"] = learned(task, n, n * LR, seeds)
        if n >= 16:
            found[f"n{n}"]["warm"] = learned(task, n, n * LR, seeds, warm_up=True)
            found[f"n{n}"]["half"] = learned(task, n, n * LR / 2, seeds)
            found[f"n{n}"]["double"] = learned(task, n, n * LR * 2, seeds)
    one = found["n1"]["same"]["target_s"]["mean"]
    for row in found.values():
        if "target_s" in row.get("linear", {}):
            row["linear"]["speed_up"] = rounded(one / row["linear"]["target_s"]["mean"])
    return found


def pace(method: lu.Method, slow: dict[int, float], jitter: float, seed: int) -> float:
    """Batches a virtual second."""
    run = lu.train(
        lu.tasks.quadratic(), method, seconds=LONG, batch_size=1, rule=lu.rules.SGD(lr=1e-6), slow=slow, seed=seed,
        engine=lu.Virtual(jitter=jitter), trace=False, progress=False, evaluate_every=10**9,
    )  # fmt: skip
    return run.samples / run.seconds


def stragglers(seeds: Sequence[int]) -> Numbers:
    """What is left of the batches a second: of four workers with one 4 times slower; of equal ones with jitter."""
    left = {
        name: rounded(pace(method, {0: 4.0}, 0, 0) / pace(method, {}, 0, 0))
        for name, method in (("barrier", lu.SyncSGD(4)), ("free", lu.Hogwild(4)))
    }
    left |= dict(zip(("barrier_theory", "free_theory"), lu.theory.straggler_speed(4, 4)))
    jitter = {
        f"n{n}": spread([pace(lu.SyncSGD(n), {}, SIGMA, s) / pace(lu.Hogwild(n), {}, SIGMA, s) for s in seeds])
        for n in (2, 4, 8)
    }
    return {"four_times": left, "jitter": jitter}


def distance(one: lu.Result, other: lu.Result) -> float:
    """The largest difference between two runs' weights."""
    pairs = zip(one.model.parameters(), other.model.parameters())
    return max((a - b).abs().max().item() for a, b in pairs)


def equality(task: lu.Task) -> Numbers:
    """Four workers beside one worker with a batch four times bigger, after the same 10 updates."""
    runs = [
        lu.train(task, method, samples=640, batch_size=batch, rule=lu.rules.SGD(lr=LR), engine=CLOCK, progress=False)
        for method, batch in ((lu.SyncSGD(4), 16), (lu.SGD(), 64), (lu.SGD(), 16))
    ]
    return {
        "updates": [run.updates for run in runs],
        "to_big_batch": rounded(distance(runs[0], runs[1])),
        "to_small_batches": rounded(distance(runs[0], runs[2])),
    }


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, three sizes, written into the current folder")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    seeds, sizes = ([0], [1, 4, 16]) if quick else ([0, 1, 2, 3, 4], SIZES)
    task = lu.tasks.fashion_mnist("mlp")
    everything = {
        "about": "Synchronous SGD on the virtual clock. same: one worker's learning rate; linear: times the number of "
        "workers; warm: linear, after a warm-up; half, double: of linear. accuracy: on the test set after the same "
        "samples, a share of 1. target_s, target_updates: virtual s and updates to the target, where all seeds reach "
        "it; speed_up: one worker's target_s over it. straggler: batches a virtual s over those of equal workers; "
        "jitter: with the barrier over those without it.",
        "settings": {
            "task": "Fashion-MNIST subset", "model": "mlp", "batch": BATCH, "lr": LR, "samples": SAMPLES,
            "target": TARGET, "warm_up_samples": WARM_UP, "rule": "SGD without momentum", "clock": repr(CLOCK),
            "seeds": seeds, "jitter_sigma": SIGMA, "jitter_s": LONG,
        },
        "machine": machine(),
        "equality": equality(task),
        "straggler": stragglers(seeds),
        "sync": scaling(task, sizes, seeds),
    }  # fmt: skip
    write("02", everything, quick)


if __name__ == "__main__":
    main()
