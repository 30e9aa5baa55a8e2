"""Measure one step of four small models: ``python bench/lessons/lesson_01.py [--quick]`` writes lesson01.json."""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from store import write
from torch import nn

from minilayup import models, tasks
from minilayup.figures.measured_step import live_activations, measure_step
from minilayup.result import machine

BATCHES = [16, 64, 256]
CONTEXT = 32
SEED = 0


def max_pool_cnn() -> nn.Sequential:
    """`models.cnn` with strides of 1, and what they threw away thrown away by max-pooling instead."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def fastest(call: Any, repeats: int = 20) -> float:
    """Milliseconds of the fastest of ``repeats`` calls."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def first_pool(batch: int) -> dict[str, float]:
    """Milliseconds of the first max-pooling alone, forward and backward."""
    x = torch.randn(batch, 16, 28, 28, requires_grad=True)
    y = F.max_pool2d(x, 2)
    grad = torch.ones_like(y)
    forward = fastest(lambda: F.max_pool2d(x, 2))
    backward = fastest(lambda: torch.autograd.grad(y, x, grad, retain_graph=True))
    return {"forward_ms": round(forward, 3), "backward_ms": round(backward, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of two repeats, batches of 16 only; to try it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    passes, repeats = (1, 2) if given.quick else (12, 10)

    pictures = tasks.fashion_mnist("mlp")
    tokens = torch.randint(256, (max(BATCHES), CONTEXT + 1))
    blocks = [f"blocks.{k}" for k in range(4)]

    def of(make: Any) -> tasks.Task:
        return tasks.Task(make, pictures.train, pictures.test, tasks.classification_loss)

    language = tasks.Task(partial(models.gpt, context=CONTEXT), tokens, tokens, tasks.language_model_loss)
    kinds: dict[str, tuple[str, tasks.Task, str | list[str]]] = {
        "mlp": ("MLP", of(models.mlp), "module"),
        "pool": ("CNN, max-pool", of(max_pool_cnn), "module"),
        "cnn": ("CNN, strided", of(models.cnn), "module"),
        "gpt": ("GPT", language, blocks),
    }
    found: dict[str, Any] = {
        "machine": machine(),
        "settings": {
            "threads": 1,
            "passes": passes,
            "kept": -(-passes // 2),
            "repeats": repeats,
            "context": CONTEXT,
            "seed": SEED,
            "spread": "lowest and highest β of the faster half of the passes",
        },
    }
    taken: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for _ in range(passes):  # over all models in turn, so that a noisy minute does not fall on one of them alone
        for key, (name, task, layers) in kinds.items():
            for batch in BATCHES[: 1 if given.quick else None]:
                step = measure_step(task, batch, name, layers, rounds=1, repeats=repeats)
                taken.setdefault((key, batch), []).append(step)
                print(name, batch, "β", step["beta"], "counted", step["counted"], flush=True)
    steps = []
    for (key, batch), several in taken.items():
        # As in measure_step: the faster half counts, the others were disturbed; the middle β of these is shown.
        kept = sorted(several, key=lambda step: float(step["update"][0][1]))[: -(-passes // 2)]
        kept.sort(key=lambda step: float(step["beta"]))
        step = kept[len(kept) // 2]
        step["beta_low"], step["beta_high"] = kept[0]["beta"], kept[-1]["beta"]
        steps.append(step)
        if batch == 64 or given.quick:
            found[key] = summary(step)
    model = pictures.model()
    batches = {size: pictures.train.batch(torch.arange(size)) for size in BATCHES}
    peaks = {size: live_activations(pictures, model, batch).peak for size, batch in batches.items()}
    found["mlp"] |= {
        "weights_bytes": sum(4 * p.numel() for p in model.parameters()),
        "peak_bytes_16": peaks[16],
        "peak_bytes_256": peaks[256],
    }
    found["pool"]["first"] = first_pool(64)
    found["steps"] = steps
    write("01", found, given.quick)


def summary(step: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one step that the prose says."""
    sizes, ms = step["live"]["bytes"], step["live"]["ms"]
    begin, end = (f(edge for span in step["backward"] for edge in span) for f in (min, max))
    half = [size for size, at in zip(sizes, ms) if at <= (begin + end) / 2][-1]
    whole = max(e for _, e in step["update"])
    return {
        **{key: step[key] for key in ("beta", "beta_low", "beta_high", "counted")},
        "forward_ms": round(max(e for _, e in step["forward"]), 3),
        "backward_ms": round(end - begin, 3),
        "update_ms": round(whole - end, 3),
        "peak_bytes": max(sizes),
        "peak_mb": max(sizes) / 1e6,
        "freed_half_way": round(1 - half / max(sizes), 3),
    }


if __name__ == "__main__":
    main()
