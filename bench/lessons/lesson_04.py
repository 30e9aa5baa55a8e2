"""What lesson 04 says in numbers: data/results/lesson04.json.

    python bench/lessons/lesson_04.py          (about 10 minutes on one core)
    python bench/lessons/lesson_04.py --keep   (keeps the stored critical rates, measures the rest: 6 minutes)
    python bench/lessons/lesson_04.py --quick  (a minute; writes into the current folder)

The critical learning rates are rates.py's.  Added here: more numbers of workers, how one shared parameter
ends, what larger batches do to the critical rate under delay, Hogwild! on a bowl, and the runs of exercise 04.2.
"""

import argparse
import re
import signal
import statistics
import subprocess
from collections.abc import Sequence
from typing import Any

import rates
import torch
from store import rounded, write

import minilayup as lu
from minilayup import theory
from minilayup.course import lesson_04, small_task, stored
from minilayup.critical import critical_rate
from minilayup.result import machine

WORKERS = 8
Numbers = dict[str, Any]


def ends(program: Any, runs: int) -> Numbers:
    """How so many processes ended: killed by a signal, with an exception in a thread, or with all gradients written."""
    codes: list[int] = []
    logs: list[str] = []
    hung = raised = whole = 0
    for _ in range(runs):
        try:
            code, log = lesson_04.in_a_process(program, seconds=120)
        except subprocess.TimeoutExpired:
            hung += 1
            continue
        codes.append(code)
        logs.append(log)
        raised += code == 0 and "Error" in log
        whole += code == 0 and "Error" not in log
    killed = sorted((code, k) for k, code in enumerate(codes) if code != 0)  # segmentation faults, -11, first
    shown = next(((code, text) for code, k in killed if (text := shortened(logs[k])).count("File") > 2), (0, ""))
    return {
        "runs": runs,
        "killed": len(killed),
        "faults": sum(code == -signal.SIGSEGV for code, _ in killed),
        "hung": hung,
        "raised": raised,
        "whole": whole,
        "code": shown[0],
        "log": shown[1],
    }


def shortened(log: str) -> str:
    """Where a killed process was: its last words on the thread at fault, without this machine's folders.

    Empty where other threads have written into the middle of them.
    """
    fatal = re.search(r"Fatal Python error: [A-Za-z ]+", log)
    current = re.search(r"Current thread 0x\w+ \(most recent call first\):\n((?:  File \"[^\"\n]+\", line .*\n)+)", log)
    if fatal is None or current is None:
        return ""
    frames = re.sub(r'File "[^"]*/([^"/]+/[^"/]+)"', r'File "…/\1"', current[1]).rstrip()
    return f"{fatal[0]}\n\nCurrent thread (most recent call first):\n{frames}"


def batch_sizes(sizes: Sequence[int], seeds: Sequence[int], steps: int) -> Numbers:
    """Critical learning rates of one worker and of eight, equal numbers of updates."""
    found: Numbers = {}
    updates = lesson_04.SAMPLES // lesson_04.BATCH
    for size in sizes:
        one, many = (
            critical_rate(
                small_task(), lu.Hogwild(n), target=lesson_04.TARGET, low=rates.LOW,
                high=rates.HIGH, seeds=seeds, samples=updates * size, batch_size=size,
                steps=steps, engine=lesson_04.CLOCK,
            )
            for n in (1, WORKERS)
        )  # fmt: skip
        relatives = [b / a for a, b in zip(one.rates, many.rates)]
        found[f"b{size}"] = {
            "batch_size": size,
            "one": rounded(one.mean),
            "one_std": rounded(one.spread),
            "many": rounded(many.mean),
            "many_std": rounded(many.spread),
            "relative": rounded(statistics.fmean(relatives)),
            "relative_std": rounded(rates.spread(relatives)),
        }
        print(f"04 batches of {size}", found[f"b{size}"], flush=True)
    run = lu.train(
        small_task(), lu.Hogwild(WORKERS), samples=lesson_04.SAMPLES, batch_size=lesson_04.BATCH,
        rule=lu.rules.SGD(lr=0.02), engine=lesson_04.CLOCK, progress=False,
    )  # fmt: skip
    tau = run.trace.mean_staleness()
    border = rates.border(tau) / 2
    return {
        "workers": WORKERS, "staleness": rounded(tau), "border_relative": rounded(border),
        "updates": updates, "seeds": list(seeds), "target": lesson_04.TARGET,
        "resolution": rounded((rates.HIGH / rates.LOW) ** (1 / 2**steps) - 1), **found,
    }  # fmt: skip


def between(workers: Sequence[int], seeds: Sequence[int], steps: int) -> Numbers:
    """The critical rate at further numbers of workers, where a reader's own dots may lie."""
    one, *others = (
        critical_rate(
            small_task(), lu.Hogwild(n), target=lesson_04.TARGET, low=rates.LOW, high=rates.HIGH,
            seeds=seeds, samples=lesson_04.SAMPLES, batch_size=lesson_04.BATCH, steps=steps, engine=lesson_04.CLOCK,
        )
        for n in (1, *workers)
    )  # fmt: skip
    found: Numbers = {}
    for n, many in zip(workers, others):
        run = rates.clockwork(small_task(), lu.Hogwild(n), many.samples // lesson_04.BATCH, seeds[0])
        tau = run.trace.mean_staleness()
        relatives = [b / a for a, b in zip(one.rates, many.rates)]
        found[f"w{n}"] = {
            "workers": n,
            "rate": rounded(many.mean),
            "relative": rounded(many.mean / one.mean),
            "relative_std": rounded(rates.spread(relatives)),
            "staleness": rounded(tau),
            "border_relative": rounded(rates.border(tau) / 2),
        }
    print("04 between", found, flush=True)
    return found


def bowl(seeds: Sequence[int]) -> Numbers:
    """Hogwild!'s critical rate on a bowl of curvature 1, over the border at staleness N - 1.

    Weights are stashed: the whole gradient is of the time of the forward pass.  constant: without jitter; varying: with
    that of the other runs.
    """
    task = lu.tasks.quadratic(eigenvalues=(1.0,))
    start = task.loss(task.model(), task.test.batch(torch.tensor([0]))).item()
    found: Numbers = {}
    for name, workers, clock, chosen, high in (
        ("constant", (2, 4, 8, 16), lu.Virtual(jitter=0), [0], 1.1),
        ("varying", (4, 8), lesson_04.CLOCK, seeds, 1.5),
    ):
        for n in workers:
            border = theory.delay_border(n - 1)
            largest = critical_rate(
                task, lu.Hogwild(n, weights="stashed"), target=start, samples=3_000, batch_size=1, low=0.9 * border,
                high=high * border, steps=5, seeds=chosen, engine=clock,
            ).rates  # fmt: skip
            over = [rate / border for rate in largest]
            found[f"{name}{n}"] = {
                "over_border": rounded(statistics.fmean(over)),
                "std": rounded(rates.spread(over)),
            }
    print("04 bowl", found, flush=True)
    return found


def design() -> Numbers:
    """Test accuracies of exercise 04.2 at some learning rates, three seeds each; 0 has diverged."""
    rows = {}
    for name, lr, size in (
        ("same", 0.2, 32), ("same_big_batch", 0.2, 256), ("root", 0.2 / 8**0.5, 32), ("over_8", 0.2 / 8, 32),
        ("over_64", 0.2 / 64, 32),
    ):  # fmt: skip
        found = lesson_04.scores(lr, size)
        rows[name] = {
            "lr": rounded(lr), "batch_size": size, "scores": [round(score, 4) for score in found],
            "mean": round(statistics.fmean(found), 4), "std": round(statistics.stdev(found), 4),
        }  # fmt: skip
        print("04 design", name, rows[name], flush=True)
    one = lesson_04.scores(lesson_04.ONE_WORKER, workers=1)
    rows["one_worker"] = {
        "lr": lesson_04.ONE_WORKER, "scores": [round(score, 4) for score in one],
        "mean": round(statistics.fmean(one), 4), "std": round(statistics.stdev(one), 4),
    }  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few runs, one seed: to see that everything works")
    parser.add_argument("--keep", action="store_true", help="keep the stored critical rates")
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds, steps = ([0], 4) if given.quick else (list(range(8)), 7)
    if given.keep:
        everything = stored("lesson04")
    else:
        everything = rates.lesson04(small_task(), seeds, steps)
    everything["between"] = between((6,) if given.quick else (3, 6, 12), seeds[:3], min(steps, 6))
    ratios = [
        row["relative"] / row["border_relative"]
        for part in ("critical", "between")
        for row in everything[part].values()
    ]
    everything["over_border"] = {"lowest": round(min(ratios), 3), "highest": round(max(ratios), 3)}
    runs = 3 if given.quick else 20
    everything["crash"] = {"shared": ends(lesson_04.one_parameter, runs), "views": ends(lesson_04.one_storage, runs)}
    print({name: {**row, "log": "…"} for name, row in everything["crash"].items()}, flush=True)
    everything["batches"] = batch_sizes([32] if given.quick else [32, 64, 128], seeds[:3], min(steps, 6))
    everything["bowl"] = bowl(seeds[:3])
    everything["design"] = design()
    everything["machine"] = machine()
    write("04", everything, given.quick)


if __name__ == "__main__":
    main()
