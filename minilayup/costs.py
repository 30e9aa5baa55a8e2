"""What a batch costs on the virtual clock, layer by layer."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch import nn

from .replica import trainable
from .tasks import Task


def layer_costs(
    kind: str, task: Task, model: nn.Module, data: Any, layers: str | list[str], forward: float, backward: float
) -> dict[str, list[float]]:
    """Virtual seconds of each layer's share of a "forward" and of a "backward" pass; they sum to the given totals.

    Args:
        kind: "equal" (every layer the same), "flops" (in proportion to the floating-point operations of a forward pass;
            layers without any count as one operation), "measured" (in proportion to times on this machine: then runs
            on different machines differ).
    """
    count = sum(1 for _ in trainable(model, layers))
    if kind == "equal":
        shares = {"forward": [1.0] * count, "backward": [1.0] * count}
    elif kind == "flops":
        flops = _flops(task, model, data, layers)
        shares = {"forward": flops, "backward": flops}
    else:
        shares = measure(task, model, data, layers)
    totals = {"forward": forward, "backward": backward}
    return {k: [totals[k] * value / sum(values) for value in values] for k, values in shares.items()}


def _flops(task: Task, model: nn.Module, data: Any, layers: str | list[str]) -> list[float]:
    from torch.utils.flop_counter import FlopCounterMode  # here, because it imports triton

    trial = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), FlopCounterMode(display=False) as counter:
        task.loss(trial, data)
    counts = counter.get_flop_counts()
    names = {id(module): name for name, module in trial.named_modules()}
    root = type(trial).__name__
    found = []
    for _, module, _ in trainable(trial, layers):
        name = names[id(module)]
        found.append(1.0 + sum(counts.get(f"{root}.{name}" if name else root, {}).values()))
    return found


def measure(
    task: Task, model: nn.Module, data: Any, layers: str | list[str] = "module", repeats: int = 10
) -> dict[str, list[float]]:
    """Seconds of each layer's share of a forward and of a backward pass on this machine: the fastest of ``repeats``.

    A layer's forward share lasts until the next layer is entered, its backward share until its gradients are there.
    """
    trial = copy.deepcopy(model)
    cut = list(trainable(trial, layers))
    best = {kind: [float("inf")] * len(cut) for kind in ("forward", "backward")}
    marks: list[tuple[int, float]] = []
    handles = [
        module.register_forward_pre_hook(lambda m, x, i=i: marks.append((i, time.perf_counter())))
        for i, (_, module, _) in enumerate(cut)
    ]
    handles += [
        p.register_post_accumulate_grad_hook(lambda p, i=i: marks.append((i, time.perf_counter())))
        for i, (_, _, own) in enumerate(cut)
        for p in own
    ]
    with torch.random.fork_rng(devices=[]):
        for _ in range(repeats):
            marks.clear()
            loss = task.loss(trial, data)
            end = time.perf_counter()
            for (i, start), (_, stop) in zip(marks, [*marks[1:], (-1, end)]):
                best["forward"][i] = min(best["forward"][i], stop - start)
            marks.clear()
            loss.backward()
            start = end
            for i, stop in dict(marks).items():  # the last of a layer's gradients counts
                best["backward"][i] = min(best["backward"][i], stop - start)
                start = stop
            trial.zero_grad()
    for handle in handles:
        handle.remove()
    return {kind: [t if t < float("inf") else 0.0 for t in times] for kind, times in best.items()}
