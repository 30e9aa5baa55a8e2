"""One step of SGD measured, layer by layer: the time of each pass, and the bytes that wait for the backward pass.

`measure_step` measures a step of any task.  Times are `minilayup.costs.measure`'s.  Live activations are counted in a
pass of their own, because counting takes time: see `live_activations`.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from .. import costs, rules
from ..data import Stream
from ..errors import positive_int
from ..replica import trainable
from ..tasks import Task

PHASES = ("forward", "backward", "update")


@dataclass
class Live:
    """The activations that autograd held during one pass forward and one backward.

    Attributes:
        marks: (layer, seconds) where each layer began in the forward pass; then (-1, …), the end of the forward pass;
            then where each layer's gradients were there.
        changes: (seconds, bytes live from then on).
    """

    marks: list[tuple[int, float]]
    changes: list[tuple[float, int]]

    @property
    def peak(self) -> int:
        """The most bytes that were live at once."""
        return max((size for _, size in self.changes), default=0)


class Saved:
    """Counts the bytes that autograd keeps for backward passes, from the moment it takes them to when it lets go.

    Autograd hands each tensor that it saves to a hook of ours, keeps what the hook returns, and drops it as soon as the
    operation that needed it has been differentiated; what we return notices that it is dropped.  A piece of storage
    counts once however many tensors look at it, from the first that is saved to the last that is dropped.

    Attributes:
        live, peak: bytes now, and the most there were.

    Args:
        changed: called with the bytes that are live from then on.
    """

    def __init__(self, changed: Callable[[int], None] = lambda live: None) -> None:
        self.live = self.peak = 0
        self._changed = changed
        self._holders: Counter[int] = Counter()

    def outside(self, known: Iterable[Tensor]) -> saved_tensors_hooks:
        """While this is entered, what forward passes save is counted; storage of the ``known`` tensors is not."""
        before = {tensor.untyped_storage().data_ptr() for tensor in known}

        def keep(tensor: Tensor) -> Tensor | _Held:
            return tensor if tensor.untyped_storage().data_ptr() in before else _Held(self, tensor)

        return saved_tensors_hooks(keep, lambda kept: kept.tensor if isinstance(kept, _Held) else kept)

    def add(self, tensor: Tensor, holders: int) -> None:
        """One holder more, or less, of a tensor's storage."""
        storage = tensor.untyped_storage()
        before = self._holders[storage.data_ptr()]
        self._holders[storage.data_ptr()] = before + holders
        if (before == 0) != (before + holders == 0):
            self.live += holders * storage.nbytes()
            self.peak = max(self.peak, self.live)
            self._changed(self.live)


class _Held:
    """Stands for a tensor in autograd's graph, and is counted until autograd lets go of it."""

    def __init__(self, saved: Saved, tensor: Tensor) -> None:
        self._saved, self.tensor = saved, tensor.detach()  # a layer that keeps its own output would keep itself alive
        saved.add(tensor, 1)

    def __del__(self) -> None:
        self._saved.add(self.tensor, -1)


def live_activations(task: Task, model: nn.Module, data: Any, layers: str | list[str] = "module") -> Live:
    """Count the bytes that autograd keeps for the backward pass, as `Saved` does, and when.

    What was there before the pass (weights, buffers, the batch) does not count; nor do gradients, and what an operation
    needs only while it runs.
    """
    trial = copy.deepcopy(model)
    marks: list[tuple[int, float]] = []
    changes: list[tuple[float, int]] = []
    saved = Saved(lambda live: changes.append((time.perf_counter(), live)))
    for i, (_, module, own) in enumerate(trainable(trial, layers)):
        module.register_forward_pre_hook(lambda m, x, i=i: marks.append((i, time.perf_counter())))
        for p in own:
            p.register_post_accumulate_grad_hook(lambda p, i=i: marks.append((i, time.perf_counter())))
    known = (*trial.parameters(), *trial.buffers(), *_tensors(data))
    with torch.random.fork_rng(devices=[]), saved.outside(known):
        loss = task.loss(trial, data)
        marks.append((-1, time.perf_counter()))
        loss.backward()
    return Live(marks, changes)


def measure_step(
    task: Task,
    batch_size: int,
    model: str = "",
    layers: str | list[str] = "module",
    rounds: int = 10,
    repeats: int = 10,
) -> dict[str, Any]:
    """Measure one step of SGD on this machine, with as many threads as torch is set to: where its time and memory go.

    Args:
        model: what to call it in pictures; default: the task's name.
        layers: how the model is cut, see `minilayup.replica.trainable`.
        rounds: each takes a time for every layer, the fastest of ``repeats``.  The faster half of the rounds is kept,
            since what else the machine does only makes a step longer; returned are the round whose β is in the middle
            of these, and their lowest and highest β.

    Returns: "model", "batch", "threads", "layers" (names); "forward", "backward", "update": [start, end] of each
        layer's share in milliseconds; "beta", "beta_low", "beta_high": the time of backward over that of forward;
        "counted": the same for floating-point operations (see `counted_beta`); "live": "ms" and "bytes", the bytes
        live from each of these times on.
    """
    positive_int("rounds", rounds)
    trial = task.model()
    data = task.train.batch(Stream(task.train, batch_size, seed=0).rows(0))
    measured = sorted((costs.measure(task, trial, data, layers, repeats) for _ in range(rounds)), key=_seconds)
    kept = sorted(measured[: -(-rounds // 2)], key=_beta)
    middle, betas = kept[len(kept) // 2], [_beta(times) for times in kept]
    live = min((live_activations(task, trial, data, layers) for _ in range(3)), key=lambda run: run.marks[-1][1])
    update = _update_times(trial, layers, repeats)

    # One layer after the other, in the order in which the passes came to them.
    end = [i for i, _ in live.marks].index(-1)
    order = {
        "forward": list(dict(live.marks[:end])),
        "backward": list(dict(live.marks[end + 1 :])),
        "update": list(reversed(range(len(update)))),
    }
    spans: dict[str, list[list[float]]] = {}
    borders, clock = [0.0], 0.0  # on the measured step's clock
    for phase in PHASES:
        seconds = update if phase == "update" else middle[phase]
        spans[phase] = [[clock, clock] for _ in seconds]
        for i in order[phase]:
            spans[phase][i] = [_ms(clock), _ms(clock + seconds[i])]
            clock += seconds[i]
            borders.append(clock)

    # The counting pass ran slower: its times are carried over, layer by layer.
    last = dict(live.marks[end + 1 :])
    counted_at = [*dict(reversed(live.marks[:end])).values()][::-1]
    counted_at = [*counted_at, live.marks[end][1], *(last[i] for i in order["backward"])]
    times = np.interp([at for at, _ in live.changes], counted_at, borders[: len(counted_at)])
    return {
        "model": model or task.name,
        "batch": batch_size,
        "threads": torch.get_num_threads(),
        "layers": layer_names(trial, layers),
        **spans,
        "beta": round(_beta(middle), 3),
        "beta_low": round(betas[0], 3),
        "beta_high": round(betas[-1], 3),
        "counted": round(counted_beta(task, trial, data), 3),
        "live": _thinned([_ms(t) for t in times], [size for _, size in live.changes]),
    }


def counted_beta(task: Task, model: nn.Module, data: Any) -> float:
    """Floating-point operations of a backward pass over those of a forward pass: no clock, the same on each machine.

    Matrix products and convolutions are counted, nothing else; on a CPU not those inside of attention.
    """
    from torch.utils.flop_counter import FlopCounterMode  # here, because it imports triton

    trial = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), FlopCounterMode(display=False) as forward:
        loss = task.loss(trial, data)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    ratio: float = backward.get_total_flops() / max(1, forward.get_total_flops())
    return ratio


def layer_names(model: nn.Module, layers: str | list[str] = "module") -> list[str]:
    """What a layer's share of a pass holds: itself and the modules without parameters that follow it."""
    readers = {id(module): i for i, (_, module, _) in enumerate(trainable(model, layers))}
    blocks = layers if isinstance(layers, list) else []
    found: list[list[str]] = [[] for _ in readers]
    at = -1
    for name, module in model.named_modules():
        if any(name.startswith(block + ".") for block in blocks):
            continue
        kind = type(module).__name__.removesuffix("2d")
        if id(module) in readers:
            at = readers[id(module)]
            found[at] = [name if name in blocks or kind == "Embedding" else kind]
        elif at >= 0 and not list(module.children()) and not isinstance(module, (nn.Flatten, nn.Identity)):
            found[at].append(kind)
    return ["+".join(parts) for parts in found]


def _tensors(data: Any) -> list[Tensor]:
    if isinstance(data, Tensor):
        return [data]
    parts = data.values() if isinstance(data, dict) else data
    return [tensor for part in parts for tensor in _tensors(part)]


def _seconds(times: dict[str, list[float]]) -> float:
    return sum(times["forward"]) + sum(times["backward"])


def _beta(times: dict[str, list[float]]) -> float:
    return sum(times["backward"]) / sum(times["forward"])


def _ms(seconds: float) -> float:
    return round(1e3 * float(seconds), 4)


def _update_times(model: nn.Module, layers: str | list[str], repeats: int) -> list[float]:
    rule, found = rules.SGD(lr=1e-3), []
    for _, _, own in trainable(copy.deepcopy(model), layers):
        weights, grads = [p.detach() for p in own], [torch.zeros_like(p) for p in own]
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            rule.apply(weights, grads, [None] * len(own), rule.lr)
            best = min(best, time.perf_counter() - start)
        found.append(best)
    return found


def _thinned(ms: list[float], sizes: list[int]) -> dict[str, list[float]]:
    """Changes that happen within a 500th of the time of each other are one, except at the peak."""
    kept: dict[str, list[float]] = {"ms": [0.0], "bytes": [0]}
    for at, size in zip(ms, sizes):
        if at - kept["ms"][-1] < ms[-1] / 500 and kept["bytes"][-1] != max(sizes):
            kept["bytes"][-1] = size
        else:
            kept["ms"].append(at)
            kept["bytes"].append(size)
    return kept
