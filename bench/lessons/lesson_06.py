"""Measure what lesson 06 says about forward threads, backward threads and the pool.

    python bench/lessons/lesson_06.py [--quick]        (some minutes; writes data/results/lesson06.json)

Real threads are timed in short windows, each followed by one of a single thread; windows in which other programs took
more than a tenth of a core are thrown away.  What is stored is the ratio of the two.  Ctrl-C ends the wait for quiet.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from store import rounded, write
from torch import Tensor, nn

import minilayup as lu
from minilayup import course
from minilayup.costs import measure
from minilayup.figures.forward_backward import ideal, virtual_run
from minilayup.figures.measured_step import Saved
from minilayup.result import Result, machine

BATCH = 64
QUIET = 0.1  # cores that other programs may take in a window
SECONDS = 0.5  # a window
REAL = [(1, b, 1) for b in range(1, 7)] + [(2, b, 1) for b in (1, 2, 3, 4, 6)]
REAL += [(1, 1, slack) for slack in (0, 4, 8)] + [(1, 2, slack) for slack in (0, 4, 8)]
VIRTUAL = [(1, 1, 1), (1, 2, 0), (1, 2, 1), (1, 2, 4), (1, 2, 8), (1, 3, 1), (1, 3, 8), (2, 1, 1), (2, 3, 1)]
CHANCE = 0.15  # guessing one of ten classes gives 0.1
RATES = [0.01, 0.05]  # learning rates at which the slack's price is shown


def method(forward: int, backward: int, slack: int) -> lu.PDASGD:
    return lu.PDASGD(forward, backward, slack, update="block")


def name(forward: int, backward: int, slack: int) -> str:
    return f"f{forward}b{backward}s{slack}"


# -- passes of one thread ----------------------------------------------------------------------------------------------
def passes(task: lu.Task, rounds: int) -> dict[str, Any]:
    """Milliseconds of the two passes on one thread, and the activations that a batch keeps for its backward pass."""
    model, data = task.model(), task.train.batch(torch.arange(BATCH))
    found = []
    for _ in range(rounds):
        wait_for_quiet()
        found.append(measure(task, model, data, repeats=50))
    forward, backward = ([1000 * sum(times[kind]) for times in found] for kind in ("forward", "backward"))
    saved = Saved()
    kept = counted_loss(saved)(model, data)
    mb = saved.live / 1e6
    del kept
    return {
        "batch": BATCH,
        "forward_ms": statistics.median(forward),
        "backward_ms": statistics.median(backward),
        "beta": statistics.median(b / f for f, b in zip(forward, backward)),
        "beta_low": min(b / f for f, b in zip(forward, backward)),
        "beta_high": max(b / f for f, b in zip(forward, backward)),
        "batch_mb": mb,
    }


def counted_loss(saved: Saved) -> Callable[[nn.Module, Any], Tensor]:
    """The classification loss, whose forward passes' savings are counted; weights are not."""

    def loss(module: nn.Module, batch: Any) -> Tensor:
        with saved.outside(module.parameters()):
            return lu.tasks.classification_loss(module, batch)

    return loss


def stamp() -> tuple[float, float, float]:
    """Processor seconds of the whole machine and of this process, and seconds."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / 100, time.process_time(), time.perf_counter()


def cores_since(before: tuple[float, float, float]) -> tuple[float, float]:
    """Cores that other programs, and that this one, have kept busy since then."""
    machine_busy, own, passed = (now - then for now, then in zip(stamp(), before))
    return (machine_busy - own) / passed, own / passed


def quiet() -> bool:
    """Whether other programs leave the machine alone at the moment."""
    before = stamp()
    time.sleep(0.2)
    return cores_since(before)[0] < QUIET


def wait_for_quiet() -> None:
    """Wait for the others to leave the machine alone, ten seconds at most."""
    patience = time.monotonic() + 10
    while not quiet() and time.monotonic() < patience:
        time.sleep(0.3)


def window(task: lu.Task, how: lu.Method) -> tuple[Result, float, float]:
    """A short run, the cores that other programs took meanwhile, and the cores that it kept busy itself."""
    before = stamp()
    result = lu.train(
        task, how, seconds=SECONDS, batch_size=BATCH, evaluate_every=10**9, progress=False,
        rule=lu.rules.SGD(lr=1e-5),
    )  # fmt: skip
    return result, *cores_since(before)


def counts(task: lu.Task, cell: tuple[int, int, int], tries: int) -> tuple[float, float, float]:
    """Mean staleness and batches in flight of batches 60 to 180 of a real run, and the cores that others took.

    The quietest of at most so many tries.
    """
    runs = []
    for _ in range(tries):
        wait_for_quiet()
        before = stamp()
        result = lu.train(
            task, method(*cell), samples=200 * BATCH, batch_size=BATCH, evaluate_every=10**9, progress=False,
            rule=lu.rules.SGD(lr=1e-5),
        )  # fmt: skip
        runs.append((cores_since(before)[0], result))
        if runs[-1][0] < QUIET:
            break
    noise, result = min(runs, key=lambda one: one[0])
    begun: dict[int, float] = {}
    written: dict[int, float] = {}
    for event in result.trace.events():
        if event.kind == "forward":
            begun.setdefault(event.batch, event.start)
        elif event.kind == "write":
            written[event.batch] = event.end
    kept = range(60, 180)
    first, last = written[60], begun[179]
    inside = sum(max(0.0, min(written[k], last) - max(begun[k], first)) for k in written)
    stale = statistics.fmean(event.staleness for event in result.trace.events("write") if event.batch in kept)
    return stale, inside / (last - first), noise


def real(task: lu.Task, minutes: float, wanted: int, tries: int, batch_mb: float) -> dict[str, Any]:
    """Speed-up over one thread in quiet windows, of each cell and of Hogwild!; staleness and batches in flight."""
    contestants: dict[str, lu.Method] = {name(*cell): method(*cell) for cell in REAL}
    contestants |= {"hogwild2": lu.Hogwild(2), "hogwild3": lu.Hogwild(3)}
    cells: dict[str, Any] = {}
    for cell in REAL:
        stale, flights, noise = zip(*(counts(task, cell, tries) for _ in range(tries)))
        cells[name(*cell)] = {
            "forward": cell[0], "backward": cell[1], "slack": cell[2],
            "staleness": statistics.median(stale), "staleness_spread": max(stale) - min(stale),
            "in_flight": statistics.median(flights), "mb": statistics.median(flights) * batch_mb,
            "others": max(noise),
        }  # fmt: skip
        print(cell, cells[name(*cell)], flush=True)
    found: dict[str, list[tuple[float, float, float]]] = {key: [] for key in contestants}
    thrown = 0
    try:
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until and min(map(len, found.values())) < wanted:
            if not quiet():
                time.sleep(0.3)
                continue
            key = min(found, key=lambda one: len(found[one]))
            result, noise, own = window(task, contestants[key])
            one, noise_one, _ = window(task, lu.SGD())
            if max(noise, noise_one) > QUIET:
                thrown += 1
                continue
            rate = one.samples_per_second / BATCH
            found[key].append((result.samples_per_second / BATCH / rate, own, rate))
            print(key, len(found[key]), found[key][-1], flush=True)
    except KeyboardInterrupt:
        print("no more waiting: stored is what was timed so far")
    speeds = {key: speed(runs) for key, runs in found.items() if runs}
    for key, cell in cells.items():
        cell |= speeds.pop(key, {})
    rates = [rate for runs in found.values() for _, _, rate in runs]
    return {
        "window_s": SECONDS, "quiet_cores": QUIET, "thrown_away": thrown,
        "one_thread_rate": statistics.median(rates) if rates else None, **speeds, "cells": cells,
    }  # fmt: skip


def speed(runs: list[tuple[float, float, float]]) -> dict[str, Any]:
    """Medians over the windows, and the quartiles of the speed-up."""
    ratios, own, _ = zip(*runs)
    low, middle, high = statistics.quantiles(ratios * 2 if len(ratios) == 1 else ratios, n=4, method="inclusive")
    middle_own = statistics.median(own)
    return {"windows": len(runs), "speed_up": middle, "low": low, "high": high, "busy_cores": middle_own}


# -- the virtual clock -------------------------------------------------------------------------------------------------
def virtual(task: lu.Task, beta: float, batch_mb: float, batches: int, seeds: list[int]) -> dict[str, Any]:
    """The library's runs with real gradients: throughput, staleness, in flight, and the bytes that are alive."""
    stored: dict[str, Any] = {}
    for cell in VIRTUAL:
        runs = []
        for seed in seeds:
            saved = Saved()
            counted = lu.Task(task.model, task.train, task.test, counted_loss(saved), task.accuracy, task.name)
            result = lu.train(
                counted, method(*cell), samples=batches * BATCH, batch_size=BATCH, engine=lu.Virtual(1.0, beta),
                rule=lu.rules.SGD(lr=1e-4), seed=seed, evaluate_every=10**9, progress=False,
            )  # fmt: skip
            runs.append((*steady(result, batches), saved.peak / 1e6))
        rates, stale, peaks = zip(*runs)
        form, timed = ideal(cell[0], cell[1], 1.0, beta, cell[2], 99), virtual_run(*cell, 1.0, beta)
        stored[name(*cell)] = {
            "speed_up": statistics.fmean(rates) * (1 + beta),
            "rate": statistics.fmean(rates), "rate_spread": max(rates) - min(rates),
            "staleness": statistics.fmean(stale), "staleness_spread": max(stale) - min(stale),
            "peak_mb": max(peaks), "pool_mb": sum(cell) * batch_mb,
            "closed_rate": form.rate, "closed_staleness": form.staleness,
            "timer_rate": timed.rate, "timer_staleness": timed.staleness,
        }  # fmt: skip
    return stored


def steady(result: Result, batches: int) -> tuple[float, float]:
    """Batches a virtual second (a forward pass takes one) and mean staleness, from batch 60 until the end is near."""
    writes = [event for event in result.trace.events("write") if 60 <= event.batch < batches - 20]
    ends = sorted({event.end for event in writes if event.layer == 0})
    return (len(ends) - 1) / (ends[-1] - ends[0]), statistics.fmean(event.staleness for event in writes)


def price(task: lu.Task, beta: float, samples: int, seeds: list[int]) -> dict[str, Any]:
    """Accuracy after the same samples at 1 forward : 2 backward, for three slacks; a run that diverges has none.

    Failed are those and the runs that end no better than guessing.
    """
    stored: dict[str, Any] = {}
    for lr in RATES:
        for slack in (0, 4, 12):
            scores = []
            for seed in seeds:
                try:
                    result = lu.train(
                        task, method(1, 2, slack), samples=samples, batch_size=BATCH, engine=lu.Virtual(1.0, beta),
                        rule=lu.rules.SGD(lr=lr), seed=seed, trace=False, evaluate_every=10**9, progress=False,
                    )  # fmt: skip
                    scores.append(result.score)
                except lu.Diverged:
                    pass
            stored[f"lr{str(lr)[2:]}s{slack}"] = {
                "mean": statistics.fmean(scores) if scores else None,
                "low": min(scores, default=None), "high": max(scores, default=None),
                "failed": len(seeds) - sum(score > CHANCE for score in scores), "seeds": len(seeds),
            }  # fmt: skip
            print(lr, slack, scores, flush=True)
    return {"samples": samples, **stored}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, seeds and cells, to see that it works")
    parser.add_argument("--keep-real", action="store_true", help="time no real threads anew")
    parser.add_argument("--minutes", type=float, default=15, help="how long to wait for quiet windows")
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = lu.tasks.fashion_mnist(model="cnn")
    seeds = [0] if given.quick else [0, 1, 2]
    cnn = passes(task, 3 if given.quick else 9)
    if given.keep_real:
        threads = course.stored("lesson06")["real"]
    else:
        minutes, wanted, tries = (1.5, 1, 1) if given.quick else (given.minutes, 5, 3)
        threads = real(task, minutes, wanted, tries, cnn["batch_mb"])
    beta = round(cnn["beta"], 2)
    for cell in threads["cells"].values():
        form = ideal(cell["forward"], cell["backward"], 1.0, beta, cell["slack"], 2)
        cell |= {"closed_speed_up": form.rate * (1 + beta), "closed_staleness": form.staleness}
    runs = virtual(task, beta, cnn["batch_mb"], 100 if given.quick else 160, seeds)
    everything = {
        "machine": machine(),
        "settings": {"task": task.name, "batch": BATCH, "beta": beta, "update": "block", "seeds": seeds,
                     "quick": given.quick, "virtual": f"Virtual(1.0, {beta}), jitter 0.1",
                     "spread": "real: quartiles; virtual: range"},
        "cnn": cnn,
        "real": threads,
        "virtual": runs,
        "directions": {"gain": runs["f1b2s1"]["rate"] / runs["f2b1s1"]["rate"]},
        "price": price(task, beta, 3_200 if given.quick else 9_600, seeds),
    }  # fmt: skip
    write("06", rounded(everything), given.quick)


if __name__ == "__main__":
    main()
