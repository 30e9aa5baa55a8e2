"""Find each contestant's learning rate for the race: one grid, one rule, seeds that the race does not use.

    python bench/tune_race.py        (about ten minutes on two cores; writes data/results/race_rates.json)

The rule: the smallest rate whose mean final accuracy is within one standard error (of 2,000 test pictures, 0.8 points)
of the best; a run that diverges counts as 0.  The best alone often lies at the border of divergence, where it wins by
less than that error and then fails on another seed.  On the virtual clock, so that anyone finds the same.
"""

import json
import statistics
from pathlib import Path

import minilayup as lu
from minilayup.race import SLOWDOWN, WARM_UP, contestants
from minilayup.result import machine

GRID = [0.05, 0.1, 0.2, 0.4]
SEEDS = [100, 101, 102, 103, 104, 105]
WORKERS = [2, 4]
SAMPLES = 16_000


def accuracy(task: lu.Task, method: lu.Method, lr: float, slow: dict[int | str, float], seed: int) -> float:
    """Final accuracy of one run; a run that diverges has none."""
    slow = {key: factor for key, factor in slow.items() if key in method.slowable()}
    try:
        result = lu.train(task, method, samples=SAMPLES, rule=lu.rules.SGD(lr=lr), engine=lu.Virtual(), seed=seed,
                          schedule=lu.rules.WarmUp(WARM_UP),
                          slow=slow, trace=False, evaluate_every=SAMPLES, progress=False)  # fmt: skip
    except lu.Diverged:
        return 0.0
    return result.score


def choose_rate(means: dict[float, float]) -> float:
    """The smallest rate that is as good as the best, within one standard error."""
    best = max(means.values())
    return min(lr for lr, mean in means.items() if mean >= best - (best * (1 - best) / 2000) ** 0.5)


def tune(task: lu.Task, workers: int, slow: dict[int | str, float]) -> dict[str, object]:
    """The best rate of each contestant, and every accuracy it was chosen by."""
    tried: dict[str, object] = {}
    best: dict[str, object] = {}
    for name, method in contestants(workers).items():
        scores = {lr: [accuracy(task, method, lr, slow, seed) for seed in SEEDS] for lr in GRID}
        means = {lr: statistics.fmean(values) for lr, values in scores.items()}
        best[name] = choose_rate(means)
        tried[name] = {f"{lr:g}": [round(value, 4) for value in values] for lr, values in scores.items()}
        print(workers, slow, name, "best", best[name], {lr: round(mean, 4) for lr, mean in means.items()}, flush=True)
    return {"rates": best, "accuracies": tried}


def main() -> None:
    task = lu.tasks.fashion_mnist(model="cnn")
    stored = {
        "rule": "smallest rate within one standard error of the best mean final accuracy, virtual clock",
        "grid": GRID,
        "seeds": SEEDS,
        "samples": SAMPLES,
        "batch_size": 64,
        "warm_up": WARM_UP,
        "model": "cnn",
        "machine": machine(),
        "workers": {str(n): {"equal": tune(task, n, {}), "slowed": tune(task, n, {n - 1: SLOWDOWN})} for n in WORKERS},
    }
    path = Path(__file__).parents[1] / "data" / "results" / "race_rates.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    print("written", path.name)


if __name__ == "__main__":
    main()
