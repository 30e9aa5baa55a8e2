"""Lesson 05: what its figure must show, held against runs on the virtual clock; and answers that must fail."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import minilayup as lu
from minilayup import models, tasks
from minilayup.course.lesson_05 import gradient_memory
from minilayup.figures.figure import Data
from minilayup.figures.update_waterfall import UPDATES, ages
from minilayup.threads import Program

HERE, MEAN = '"at this offset"', '"mean over all offsets"'


def later(update: str, offset: float) -> lu.Hogwild:
    """Hogwild! with two workers, of which the second begins ``offset`` later."""

    class Later(lu.Hogwild):
        def programs(self, run: Any) -> list[Program]:
            programs = super().programs(run)
            body = programs[1].body

            def waits() -> None:
                run.clock.sleep(offset)
                body()

            programs[1].body = waits
            return programs

    return Later(2, update)


def trace(method: lu.Hogwild, layers: int, beta: float, batches: int, jitter: float = 0.0, seed: int = 0) -> Any:
    """The events of a run over a perceptron of ``layers`` layers."""
    x, y = torch.zeros(64, 8), torch.zeros(64, dtype=torch.long)
    task = lu.Task(lambda: models.mlp(4, layers - 1, 8, 2), (x, y), (x, y), tasks.classification_loss)
    run = lu.train(task, method, samples=batches, batch_size=1, rule=lu.rules.SGD(lr=1e-6), seed=seed, progress=False,
                   engine=lu.Virtual(backward=beta, jitter=jitter), evaluate_every=10**9)  # fmt: skip
    return run.trace


def as_in_a_run(data: Data) -> bool:
    """Ready, written, read and age of thread 1's first batch are those of the closed form, both ways of writing."""
    layers, beta = len(data["ready"]), data["step"] - 1
    for update in UPDATES:
        run = trace(later(update, data["begins"]), layers, beta, batches=8)
        ready = {e.layer: e.end for e in run.events("backward") if e.batch == 0}
        written = {e.layer: e.end for e in run.events("write") if e.batch == 0}
        found = [first for first, *_ in ages(run)]
        for k in range(layers):
            pairs = [
                (ready[k], data["ready"][k]),
                (written[k], data[f"{update}_written"][k]),
                (found[k], data[f"{update}_age"][k]),
                (ready[k] + found[k], data[f"{update}_read"][k]),
            ]
            if any(abs(ours - theirs) > 1e-6 for ours, theirs in pairs):
                return False
    return True


def last_layers_a_whole_step_younger(data: Data) -> bool:
    """Four of six layers, from the last one down; the first ones not at all."""
    return data["saved"][:2] == [0, 0] and all(abs(s - data["step"]) < 1e-9 for s in data["saved"][2:])


def nothing_for_one_worker(data: Data) -> bool:
    """Layers are written earlier, and read no sooner; a worker that trains alone takes the same time either way."""
    earlier = [b - w for b, w in zip(data["block_written"], data["layer_written"])]
    alone = [trace(lu.Hogwild(1, update), len(earlier), data["step"] - 1, batches=4) for update in UPDATES]
    ends = [max(event.end for event in run.events()) for run in alone]
    return statistics.fmean(earlier) > 0.5 and data["saved"] == [0] * len(earlier) and ends[0] == ends[1]


def most_for_the_last_layers(data: Data) -> bool:
    """On average over offsets: in runs of three seeds, too, by more than the seeds differ."""
    layers, seeds = len(data["ready"]), range(3)
    found = []
    for seed in seeds:
        block, layer = (
            [statistics.fmean(a) for a in ages(trace(lu.Hogwild(2, update), layers, 2, 300, 0.3, seed), 60)]
            for update in UPDATES
        )
        found.append([b - w for b, w in zip(block, layer)])
    means, spreads = ([f(column) for column in zip(*found)] for f in (statistics.fmean, statistics.stdev))
    rising = all(a < b for a, b in zip(data["saved"], data["saved"][1:]))
    near = all(abs(m - s) < 0.1 + 3 * d for m, s, d in zip(means, data["saved"], spreads))
    return rising and near and means[-1] - means[0] > 5 * max(spreads[0], spreads[-1])


def one_gradient_at_a_time(data: Data) -> bool:
    """Equal layers: block writing keeps as many gradients as there are layers, layer-wise writing one."""
    layers = len(data["ready"])
    for update in UPDATES:
        model = nn.Sequential(*(nn.Linear(5, 5) for _ in range(layers)))
        peak, _ = gradient_memory(model, model(torch.ones(2, 5)).sum(), update)
        if peak != data[f"{update}_alive"] * 4 * 30:
            return False
    return data["block_alive"] == layers > 1


FINDINGS: list[tuple[str, Callable[[Data], bool]]] = [
    (f"UpdateWaterfall offset=70 layers=6 beta=2 ages={HERE}", last_layers_a_whole_step_younger),
    (f"UpdateWaterfall offset=70 layers=6 beta=2 ages={HERE}", as_in_a_run),
    (f"UpdateWaterfall offset=85 layers=7 beta=2.5 ages={HERE}", as_in_a_run),
    (f"UpdateWaterfall offset=35 layers=5 beta=1.5 ages={HERE}", as_in_a_run),
    (f"UpdateWaterfall offset=0 layers=6 beta=2 ages={HERE}", nothing_for_one_worker),
    (f"UpdateWaterfall offset=70 layers=8 beta=2 ages={MEAN}", most_for_the_last_layers),
    (f"UpdateWaterfall offset=70 layers=6 beta=2 ages={HERE}", one_gradient_at_a_time),
]


# -- wrong answers -----------------------------------------------------------------------------------------------------
def never_freed(model: nn.Module, lr: float, parts: int) -> None:
    def hook(p: torch.Tensor) -> None:
        p.data.add_(p.grad, alpha=-lr)

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)


def planted(model: nn.Module, lr: float, parts: int) -> None:
    """The exercise's own, with all of its faults."""

    def hook(p: torch.Tensor) -> None:
        p.data.add_(p.grad, alpha=-lr)

    for module in model.modules():
        for p in module.parameters(recurse=False):
            p.register_post_accumulate_grad_hook(hook)


def a_hook_for_each_module(model: nn.Module, lr: float, parts: int) -> None:
    """The same, with the gradient let go: the second hook of the tied weight finds none."""

    def hook(p: torch.Tensor) -> None:
        p.data.add_(p.grad, alpha=-lr)
        p.grad = None

    for module in model.modules():
        for p in module.parameters(recurse=False):
            p.register_post_accumulate_grad_hook(hook)


def twice_but_quietly(model: nn.Module, lr: float, parts: int) -> None:
    """Each use of a tied weight writes the whole gradient."""
    uses = [p for module in model.modules() for p in module.parameters(recurse=False)]

    def hook(p: torch.Tensor) -> None:
        for q in uses:
            if q is p:
                p.data.add_(p.grad, alpha=-lr)
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)


def at_each_micro_batch(model: nn.Module, lr: float, parts: int) -> None:
    def hook(p: torch.Tensor) -> None:
        p.data.add_(p.grad, alpha=-lr)
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)


def gradient_hook(model: nn.Module, lr: float, parts: int) -> None:
    for p in model.parameters():
        p.register_hook(lambda grad, p=p: p.data.add_(grad, alpha=-lr))


def all_at_the_end(model: nn.Module, lr: float, parts: int) -> None:
    own, arrived = list(model.parameters()), [0]

    def hook(p: torch.Tensor) -> None:
        arrived[0] += 1
        if arrived[0] % (parts * len(own)) == 0:
            for q in own:
                q.data.add_(q.grad, alpha=-lr)
                q.grad = None

    for p in own:
        p.register_post_accumulate_grad_hook(hook)


def not_divided_by_what_is_divided(model: nn.Module, lr: float, parts: int) -> None:
    at_each_micro_batch(model, lr / 2, parts)


BLOCK = 4 * (785 * 100 + 101 * 100 + 101 * 10)
LAYER = 4 * 785 * 100

MUTANTS: dict[str, dict[str, tuple[Any, str]]] = {
    "05.1": {
        "each use of a layer has a gradient": ({"block": BLOCK + 4 * 10100, "layer": LAYER}, "twice"),
        "layer-wise writing needs no gradient": ({"block": BLOCK, "layer": 0}, "no gradient at all"),
        "the first to be written is the peak": ({"block": BLOCK, "layer": 4 * 1010}, "last layer"),
        "the mean layer is the peak": ({"block": BLOCK, "layer": BLOCK / 3}, "mean"),
        "both ways keep everything": ({"block": BLOCK, "layer": BLOCK}, "all gradients at once"),
        "numbers, not bytes": ({"block": BLOCK / 4, "layer": LAYER / 4}, "4 bytes"),
        "biases have none": ({"block": 4 * (78400 + 10000 + 1000), "layer": LAYER}, "biases"),
    },
    "05.2": {
        "a gradient that was written goes away by itself": (never_freed, "freed"),
        "as it was": (planted, "freed"),
        "each module owns its weight": (a_hook_for_each_module, "twice"),
        "each use is a write": (twice_but_quietly, "written twice"),
        "the hook fires once a batch": (at_each_micro_batch, "micro-batches"),
        "a gradient hook will do": (gradient_hook, "gradient hook"),
        "hooks that write the whole model": (all_at_the_end, "block writing"),
        "another step": (not_divided_by_what_is_divided, "single step"),
    },
    "05.3": {
        "the last layers gain at every offset": (f"UpdateWaterfall offset=50 layers=8 beta=2 ages={HERE}", "last one"),
        "earlier writes are enough": (f"UpdateWaterfall offset=0 layers=8 beta=2 ages={HERE}", "no layer gains"),
        "the backward pass does not matter": (
            f"UpdateWaterfall offset=75 layers=8 beta=0.5 ages={HERE}",
            "which control",
        ),
        "any number of layers": (f"UpdateWaterfall offset=75 layers=6 beta=2 ages={HERE}", "layers"),
    },
}
