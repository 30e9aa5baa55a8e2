"""What lesson 00 says in numbers: work and accuracy with one slow worker, over three seeds, on the virtual clock.

python bench/lessons/lesson_00.py [--quick]       writes data/results/lesson00.json
"""

from __future__ import annotations

import statistics
import sys

from store import write

import minilayup as lu
from minilayup.figures.race_in_small import BATCH, METHODS, SECONDS, race_task
from minilayup.result import machine


def main(quick: bool) -> None:
    task, seeds = race_task(), range(1 if quick else 3)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for factor in (1, 4, 10):
        for method in METHODS:
            runs = [
                lu.train(task, method, seconds=SECONDS - 0.5, batch_size=BATCH, rule=lu.rules.SGD(lr=0.1), seed=seed,
                         engine=lu.Virtual(jitter=0), slow={0: float(factor)}, trace=False, progress=False)
                for seed in seeds
            ]  # fmt: skip
            scores = [run.score for run in runs]
            equal = found.get("x1", {}).get(method.name, {}).get("samples", runs[0].samples)
            found.setdefault(f"x{factor}", {})[method.name] = {
                "samples": runs[0].samples,
                "kept": runs[0].samples / equal,
                "accuracy": statistics.fmean(scores),
                "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
            }
    settings = {
        "task": task.name,
        "seconds": SECONDS,
        "batch_size": BATCH,
        "lr": 0.1,
        "seeds": list(seeds),
        "workers": 4,
    }
    write("00", {"settings": settings, "machine": machine(), **found}, quick)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
