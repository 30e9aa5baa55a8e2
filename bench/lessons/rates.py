"""What lessons 04 and 07 share: critical learning rates, staleness, speed and memory, all on the virtual clock.

lesson_04.py and lesson_07.py beside this file are the scripts.

A critical learning rate is the largest one with which the network still reaches the target; see minilayup.critical.
Jitter is strong (0.3 for each pass): workers begin in phase, and it carries them apart within five batches each, where
the default of 0.1 takes twenty, which for 16 workers is most of a run.
The perceptron was chosen because its border is sharp: its rates differ by 10 % between seeds, the CNN's by more.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from store import rounded

import minilayup as lu
from minilayup import theory
from minilayup.critical import critical_rate
from minilayup.figures.forward_backward import shares
from minilayup.figures.measured_step import Saved
from minilayup.result import machine
from minilayup.trace import Trace

ENGINE = lu.Virtual(forward=1.0, backward=2.0, jitter=0.3)
BATCH, SAMPLES, TARGET, LOW, HIGH = 32, 12_800, 0.5, 0.005, 1.28
WORKERS = [1, 2, 4, 8, 16]
COMMON_LR = 0.03  # of lesson 7's curves
EVALUATIONS = 20  # of each curve
STEADY = 1_600  # batches of the runs that measure speed and memory

Numbers = dict[str, Any]


def spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def critical(task: lu.Task, method: lu.Method, seeds: Sequence[int], steps: int) -> Numbers:
    """The critical learning rate: mean and standard deviation over the seeds, and each seed's bracket."""
    found = critical_rate(task, method, target=TARGET, samples=SAMPLES, low=LOW, high=HIGH, seeds=seeds, steps=steps,
                          batch_size=BATCH, engine=ENGINE)  # fmt: skip
    return {
        "rate": rounded(found.mean),
        "std": rounded(found.spread),
        "rates": [rounded(reached) for reached, _ in found.brackets],
        "failed": [rounded(failed) for _, failed in found.brackets],
    }


def clockwork(task: lu.Task, method: lu.Method, batches: int, seed: int) -> lu.Result:
    """A run for its events alone. On the virtual clock they depend neither on the batches' size nor on the weights."""
    return lu.train(task, method, samples=batches, batch_size=1, rule=lu.rules.SGD(lr=1e-6), engine=ENGINE, seed=seed,
                    evaluate_every=10**9, progress=False)  # fmt: skip


def settings(seeds: Sequence[int], steps: int, **more: Any) -> Numbers:
    return {
        "task": "Fashion-MNIST subset", "model": "mlp, 2 hidden layers of 64", "batch": BATCH, "samples": SAMPLES,
        "target": TARGET, "rule": "SGD without momentum, constant rate", "low": LOW, "high": HIGH, "steps": steps,
        "resolution": rounded((HIGH / LOW) ** (1 / 2**steps) - 1), "clock": repr(ENGINE), "seeds": list(seeds),
        **more, "machine": machine(),
    }  # fmt: skip


# -- lesson 4: Hogwild! with more and more workers ---------------------------------------------------------------------
def border(tau: float) -> float:
    """Theory's border at a staleness between two whole numbers: linear between theirs."""
    below = int(tau)
    share = tau - below
    return (1 - share) * theory.delay_border(below) + share * theory.delay_border(below + 1)


def lesson04(task: lu.Task, seeds: Sequence[int], steps: int) -> Numbers:
    layers = len(clockwork(task, lu.SGD(), 1, 0).trace.layers)
    found: dict[str, Numbers] = {}
    for n in WORKERS:
        own = critical(task, lu.Hogwild(n), seeds, steps)
        traces = [clockwork(task, lu.Hogwild(n), SAMPLES // BATCH, seed).trace for seed in seeds]
        taus = [trace.mean_staleness() for trace in traces]
        tau = statistics.fmean(taus)
        one = found.get("w1", own)
        relatives = [rate / first for rate, first in zip(own["rates"], one["rates"])]
        found[f"w{n}"] = {
            "workers": n,
            **own,
            "relative": rounded(own["rate"] / one["rate"]),
            "relative_std": rounded(spread(relatives)),
            "relatives": [rounded(value) for value in relatives],
            "staleness": rounded(tau),
            "staleness_max": max(trace.max_staleness() for trace in traces),
            "stalenesses": [rounded(value) for value in taus],
            "staleness_theory": rounded(theory.hogwild_staleness(n, layers)),
            "border": rounded(border(tau)),
            "border_relative": rounded(border(tau) / border(0)),
        }
        row = found[f"w{n}"]
        print(f"04 w{n}", *(f"{k} {row[k]}" for k in ("rate", "std", "rates", "relative", "staleness",
              "staleness_theory", "border_relative")), flush=True)  # fmt: skip
    return {
        "about": "Critical learning rate of Hogwild!, block writing, by workers. relative: over one worker's rate. "
        "staleness: mean over all layers' writes of runs of this length. border: theory.delay_border at that mean "
        "staleness, linear between whole numbers; border_relative: over the one at 0.",
        "settings": settings(seeds, steps, layers=layers),
        "critical": found,
    }


# -- lesson 7: block or layer, coupled or decoupled --------------------------------------------------------------------
def grid(threads: int) -> dict[str, lu.Method]:
    """The four corners, and decoupled variants of them; F:B is 1:2, which keeps both busy."""
    forward, backward = threads // 3, threads - threads // 3
    methods: dict[str, lu.Method] = {
        "hogwild_block": lu.Hogwild(threads),
        "hogwild_layer": lu.Hogwild(threads, update="layer"),
        "hogwild_block_stashed": lu.Hogwild(threads, weights="stashed"),
        "hogwild_layer_stashed": lu.Hogwild(threads, update="layer", weights="stashed"),
    }
    for name, slack, weights in (("", 0, "live"), ("_slack1", 1, "live"), ("_stashed", 0, "stashed")):
        methods[f"dasgd{name}"] = lu.PDASGD(forward, backward, slack, weights, "block")
        methods[f"pdasgd{name}"] = lu.PDASGD(forward, backward, slack, weights, "layer")
    return methods


def in_flight(trace: Trace, start: float, end: float) -> tuple[float, int]:
    """Mean and largest number of batches between the start of their forward and the end of their backward pass."""
    begins: dict[int, float] = {}
    ends: dict[int, float] = {}
    for event in trace.events():
        if event.kind == "forward":
            begins.setdefault(event.batch, event.start)
        elif event.kind == "backward":
            ends[event.batch] = max(event.end, ends.get(event.batch, 0.0))
    assert not trace.dropped
    spans = [(begins[k], ends[k]) for k in begins]
    mean = sum(count * share for count, share in shares(spans, start, end).items())
    return mean, max(shares(spans, 0.0, max(ends.values())))


def costs(task: lu.Task, method: lu.Method, seeds: Iterable[int]) -> Numbers:
    """Batches a virtual second, staleness, batches in flight; the first and last tenth of the time left out."""
    paces, means, taus, most, largest = [], [], [], 0, 0
    for seed in seeds:
        run = clockwork(task, method, STEADY, seed)
        start, end = 0.1 * run.seconds, 0.9 * run.seconds
        last = {event.batch: event.end for event in run.trace.events("write")}
        paces.append(sum(start < time <= end for time in last.values()) / (end - start))
        mean, top = in_flight(run.trace, start, end)
        means.append(mean)
        taus.append(run.trace.mean_staleness())
        most, largest = max(most, top), max(largest, run.trace.max_staleness())
    return {"paces": paces, "in_flight": rounded(statistics.fmean(means)), "in_flight_max": most,
            "staleness": rounded(statistics.fmean(taus)), "staleness_max": largest}  # fmt: skip


def activation_bytes(task: lu.Task) -> int:
    """Bytes that autograd keeps from one batch's forward pass for its backward pass, the weights not counted."""
    model, saved = task.model(), Saved()
    with saved.outside(model.parameters()):
        loss = task.loss(model, task.train.batch(torch.arange(BATCH)))  # the graph lives as long as the loss
    assert loss.requires_grad
    return saved.live


def memory(task: lu.Task) -> Numbers:
    """What a batch keeps, its pictures included, and what the weights take."""
    pictures = task.train.batch(torch.arange(BATCH))[0]
    return {
        "kB_per_batch": rounded(activation_bytes(task) / 1e3),
        "of_which_pictures_kB": rounded(pictures.numel() * pictures.element_size() / 1e3),
        "weights_kB": rounded(sum(p.numel() * p.element_size() for p in task.model().parameters()) / 1e3),
    }


def curve(task: lu.Task, method: lu.Method, seed: int) -> Numbers:
    """One run at the common rate: a list for each axis, an entry an evaluation."""
    run = lu.train(task, method, samples=SAMPLES, batch_size=BATCH, rule=lu.rules.SGD(lr=COMMON_LR), engine=ENGINE,
                   seed=seed, trace=False, evaluate_every=SAMPLES // EVALUATIONS, progress=False)  # fmt: skip
    return {
        "samples": [point.samples for point in run.points],
        "updates": [point.updates for point in run.points],
        "seconds": [round(point.seconds, 1) for point in run.points],
        "score": [round(point.score, 4) for point in run.points],
    }


def lesson07(task: lu.Task, seeds: Sequence[int], steps: int, threads: Sequence[int] = (3, 12)) -> Numbers:
    size = activation_bytes(task)
    one = {**costs(task, lu.SGD(), seeds[:3]), **critical(task, lu.SGD(), seeds, steps)}
    pace = statistics.fmean(one.pop("paces"))
    curves: Numbers = {"lr": COMMON_LR, "one": [curve(task, lu.SGD(), seed) for seed in seeds[:3]]}
    stored: Numbers = {}
    for n in threads:
        stored[f"t{n}"], curves[f"t{n}"] = {}, {}
        for name, method in grid(n).items():
            own = {**costs(task, method, seeds[:3]), **critical(task, method, seeds, steps)}
            ratios = [value / pace for value in own.pop("paces")]
            stored[f"t{n}"][name] = {
                "method": str(method),
                "speed_up": rounded(statistics.fmean(ratios)),
                "speed_up_std": rounded(spread(ratios)),
                **own,
                "relative": rounded(own["rate"] / one["rate"]),
                "activation_kB": rounded(own["in_flight"] * size / 1e3),
                "activation_kB_max": rounded(own["in_flight_max"] * size / 1e3),
            }
            if not name.endswith("_slack1"):
                curves[f"t{n}"][name] = [curve(task, method, seed) for seed in seeds[:3]]
            row = stored[f"t{n}"][name]
            print(f"07 t{n} {name}", *(f"{k} {row[k]}" for k in ("speed_up", "staleness", "staleness_max", "in_flight",
                  "in_flight_max", "rate", "std", "rates")), flush=True)  # fmt: skip
    return {
        "about": "The 2x2 ablation at equal threads: hogwild (coupled) or D-ASGD/PD-ASGD (decoupled, F:B = 1:2), block "
        "or layer writing. speed_up: batches a virtual second over one thread's. in_flight: batches between the start "
        "of their forward and the end of their backward pass. rate: critical learning rate; relative: over one "
        "thread's. dasgd, pdasgd: slack 0, live weights; _slack1: one waiting place; _stashed: backward with the "
        "forward's weights.",
        "settings": settings(seeds, steps, steady_batches=STEADY, steady_and_curve_seeds=list(seeds[:3])),
        "activation": memory(task),
        "one": one,
        "threads": stored,
        "curves": curves,
    }  # fmt: skip
