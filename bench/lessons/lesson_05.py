"""Measure what lesson 05 says about layer-wise writing: bits, gradient memory, time of a step, staleness and age.

    python bench/lessons/lesson_05.py [--quick]

Writes data/results/lesson05.json.  About a minute of processor time.  Layers are counted from the input side.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from store import rounded, write
from torch import Tensor, nn

import minilayup as lu
from minilayup import bench, models, tasks, theory
from minilayup.course.lesson_05 import gradient_memory
from minilayup.figures.update_waterfall import ages
from minilayup.methods import SGD, Hogwild, Method
from minilayup.process import seeded
from minilayup.result import machine

UPDATES = ("block", "layer")
BITS_BATCHES, LAYERS, JITTER = 20, 8, 0.3
ENGINE = lu.Virtual(forward=1.0, backward=2.0, jitter=JITTER)
RULE = lu.rules.SGD(lr=0.05, momentum=0.9, weight_decay=1e-4)


def over(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation."""
    return {"mean": rounded(statistics.fmean(values)), "sd": rounded(statistics.stdev(values))}


def random_task(kind: str) -> lu.Task:
    """Random rows for one of the four models."""
    made = bench.task(kind.removesuffix("_tied"))
    if kind == "gpt_tied":
        made = lu.Task(partial(models.gpt, tied=True), made.train, made.test, tasks.language_model_loss)
    return made


# -- bits, memory, order -----------------------------------------------------------------------------------------------
def bits_equal(task: lu.Task, update: str, rows: int) -> bool:
    """Whether some steps of minilayup leave the weights that a plain loop with torch.optim.SGD leaves."""
    run = lu.train(task, SGD(update), samples=BITS_BATCHES * rows, batch_size=rows, rule=RULE, shuffle=False,
                   evaluate_every=10**9, progress=False)  # fmt: skip
    with seeded(0):
        model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for batch in bench.batches_of(task, rows, BITS_BATCHES):
        optimizer.zero_grad()
        task.loss(model, batch.data).backward()
        optimizer.step()
    return all(torch.equal(a, b) for a, b in zip(run.model.parameters(), model.parameters(), strict=True))


def memory(task: lu.Task) -> dict[str, Any]:
    """Peak bytes of finished gradients, counted at each hook; the largest layer, and when the last one is ready."""
    batch = task.train.batch(torch.arange(4))
    peaks, order = {}, []
    for update in UPDATES:
        model = task.model()
        peaks[update], events = gradient_memory(model, task.loss(model, batch), update)
        order = [name for name, what, _ in events if what == "ready"]
    sizes = {name: sum(p.nbytes for p in own) for name, _, own in lu.replica.trainable(task.model())}
    return {
        **peaks,
        **{f"{update}_kb": rounded(peak / 1000) for update, peak in peaks.items()},
        "ratio": rounded(peaks["block"] / peaks["layer"]),
        "largest": max(sizes, key=lambda name: sizes[name]),
        "largest_share": rounded(max(sizes.values()) / sum(sizes.values())),
        "layers": len(sizes),
        "first_ready": order[0],
        "last_ready": order[-1],
    }


def tied_inside(task: lu.Task) -> dict[str, Any]:
    """Peak bytes with layer-wise writing if the tied weight's unfinished gradient counts too, from its first part on.

    Each use of the weight makes an alias of its own, whose hook tells when that use's part of the gradient arrives.
    """
    model = task.model()
    inside = alive = peak = parts = 0
    weight = model.tokens.weight

    def part(_: Tensor) -> None:
        nonlocal inside, peak, parts
        parts += 1
        inside = weight.nbytes if parts == 1 else 0  # at the second part the gradient is finished: .grad takes over
        peak = max(peak, inside + alive)

    def arrived(parameter: Tensor) -> None:
        nonlocal alive, peak
        alive += parameter.grad.nbytes
        peak = max(peak, inside + alive)

    layers = [own for _, _, own in lu.replica.trainable(model)]
    missing = [len(own) for own in layers]

    def written(index: int, _: Tensor) -> None:
        nonlocal alive
        missing[index] -= 1
        if missing[index] == 0:
            alive -= sum(p.grad.nbytes for p in layers[index])

    for index, own in enumerate(layers):
        for parameter in own:
            parameter.register_post_accumulate_grad_hook(arrived)
            parameter.register_post_accumulate_grad_hook(partial(written, index))

    def alias() -> Tensor:
        made = weight.view_as(weight)
        made.register_hook(part)
        return made

    model.head.forward = lambda x: nn.functional.linear(x, alias())
    model.tokens.forward = lambda tokens: nn.functional.embedding(tokens, alias())
    task.loss(model, task.train.batch(torch.arange(4))).backward()
    assert parts == 2 and alive == 0
    return {"bytes": peak, "kb": rounded(peak / 1000), "weight_kb": rounded(weight.nbytes / 1000)}


# -- time --------------------------------------------------------------------------------------------------------------
def step_ratio(task: lu.Task, rows: int, count: int, pairs: int) -> dict[str, Any]:
    """Processor time of steps with layer-wise writing over that with block writing, one worker, timed alternately."""
    batches = bench.batches_of(task, rows, count)

    def side(update: str, clock: Any) -> bench.Timed:
        run = bench.make_run(task, SGD(update), len(batches), 1, clock)
        view = run.view(run.replica(), run.write, update)

        def step(batch: Any) -> None:
            loss = view.forward(batch)
            view.backward(loss)

        return partial(bench.thread_seconds, step, batches)

    found = bench.in_a_program(lambda clock: bench.ratios(side("layer", clock), side("block", clock), pairs))
    low, median, high = (rounded(value) for value in statistics.quantiles(found, n=4, method="inclusive"))
    return {"median": median, "low": low, "high": high, "pairs": pairs, "batches": count, "rows": rows}


def arrivals(repeats: int) -> dict[str, Any]:
    """Shares of a backward pass after which each of 8 equal layers has its gradient, last layer first: medians."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(LAYERS)))
    x, marks, found = torch.randn(256, 256), [], []
    for linear in (block[0] for block in model):
        linear.weight.register_post_accumulate_grad_hook(lambda _: marks.append(time.thread_time()))
    for _ in range(repeats):
        model.zero_grad()
        loss = model(x).square().mean()
        marks.clear()
        start = time.thread_time()
        loss.backward()
        end = time.thread_time()
        found.append([(mark - start) / (end - start) for mark in marks])
    shares = [rounded(statistics.median(column)) for column in zip(*found)]
    means = [statistics.fmean(row) for row in found]
    return {
        "shares": shares, "mean": rounded(statistics.median(means)), "sd": rounded(statistics.stdev(means)),
        "equal": rounded((LAYERS + 1) / (2 * LAYERS)), "repeats": repeats,
    }  # fmt: skip


# -- staleness and age, on the virtual clock ---------------------------------------------------------------------------
def clockwork(method: Method, batches: int, seed: int) -> lu.Result:
    """A run for its events alone, over a perceptron of 8 layers: they do not depend on the weights."""
    x, y = torch.zeros(64, 8), torch.zeros(64, dtype=torch.long)
    task = lu.Task(lambda: models.mlp(4, LAYERS - 1, 8, 2), (x, y), (x, y), tasks.classification_loss)
    return lu.train(task, method, samples=batches, batch_size=1, rule=lu.rules.SGD(lr=1e-6), engine=ENGINE, seed=seed,
                    evaluate_every=10**9, progress=False)  # fmt: skip


def staleness(workers: int, batches: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Mean staleness by layer and over all, with the closed form."""
    found: dict[str, Any] = {"workers": workers, "batches": batches}
    for update in UPDATES:
        rows = []
        for seed in seeds:
            writes = [event for event in clockwork(Hogwild(workers, update), batches, seed).trace.events("write")
                      if event.batch >= batches // 5]  # fmt: skip
            rows.append([statistics.fmean(e.staleness for e in writes if e.layer == k) for k in range(LAYERS)])
        means = over([statistics.fmean(row) for row in rows])
        theirs = theory.hogwild_staleness(workers, LAYERS, update)
        found[update] = {**means, "theory": rounded(theirs), "layers": [over(column) for column in zip(*rows)]}
    less = [1 - b / a for a, b in [(found["block"]["mean"], found["layer"]["mean"])]]
    return {
        **found,
        "less": rounded(less[0]),
        "theory_less": rounded(1 - found["layer"]["theory"] / found["block"]["theory"]),
    }


def age(batches: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Mean age by layer, two threads; saved: block minus layer-wise, with the spread of the seeds' differences."""
    rows = {
        update: [
            [
                statistics.fmean(layer)
                for layer in ages(clockwork(Hogwild(2, update), batches, seed).trace, batches // 5)
            ]
            for seed in seeds
        ]
        for update in UPDATES
    }
    saved = [[b - w for b, w in zip(*pair)] for pair in zip(rows["block"], rows["layer"])]
    return {
        "batches": batches,
        **{f"{update}_mean": over([statistics.fmean(row) for row in rows[update]]) for update in UPDATES},
        **{update: [over(column) for column in zip(*rows[update])] for update in UPDATES},
        "saved": [over(column) for column in zip(*saved)],
        "left": [rounded(2 * k / LAYERS) for k in range(LAYERS)],
    }


def main(quick: bool) -> None:
    torch.set_num_threads(1)
    seeds = range(2 if quick else 5)
    kinds = {"mlp": (64, 40), "cnn": (64, 25), "gpt": (8, 4), "gpt_tied": (8, 4)}
    found: dict[str, Any] = {
        "machine": machine(),
        "settings": {
            "threads": 1, "seeds": list(seeds), "clock": repr(ENGINE), "layers": LAYERS, "bits_batches": BITS_BATCHES,
            "bits_rule": repr(RULE), "spread": "sd over seeds; low and high: quartiles over pairs",
        },
    }  # fmt: skip
    made = {kind: random_task(kind) for kind in kinds}
    found["bits_equal"] = {
        kind: {update: bits_equal(task, update, min(kinds[kind][0], 8)) for update in UPDATES}
        for kind, task in made.items()
    }
    found["memory"] = {kind: memory(task) for kind, task in made.items()}
    found["memory"]["gpt_tied"]["inside"] = tied_inside(made["gpt_tied"])
    pairs = 3 if quick else 31
    found["step"] = {kind: step_ratio(made[kind], *kinds[kind], pairs) for kind in ("mlp", "cnn", "gpt")}
    found["arrivals"] = arrivals(10 if quick else 200)
    batches = 200 if quick else 2_000
    found["staleness"] = staleness(4, batches, seeds)
    found["age"] = age(batches, seeds)
    write("05", found, quick)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
