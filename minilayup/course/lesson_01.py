"""The checks of lesson 01: live activations from shapes, a repaired optimiser, a model with a cheap first layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd  # as a function: the class loads a compiler, for seconds

from .. import models, tasks
from ..figures.measured_step import counted_beta, live_activations
from .exercise import Exercise, Verdict, is_number

# -- 01.1: how many bytes are live at the peak -------------------------------------------------------------------------

BATCH, INPUTS, WIDTH, CLASSES, FLOAT = 128, 784, 100, 10, 4  # the net of 01.1 has two hidden layers


def _batch(size: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.rand(size, INPUTS, generator=random), torch.randint(CLASSES, (size,), generator=random)


def _pictures(width: int, hidden: int) -> tasks.Task:
    return tasks.Task(lambda: models.mlp(width, hidden), _batch(64), _batch(64), tasks.classification_loss)


def _peak(answer: Any) -> Verdict:
    asked = "the bytes that are live when the backward pass begins, within 1 %"
    if not is_number(answer) or not answer >= 0 or math.isinf(answer):
        return Verdict(False, asked, f"{answer!r}, which is no number of bytes", "Give one number, such as 12_000.")
    task = _pictures(WIDTH, 2)
    true = live_activations(task, task.model(), _batch(BATCH)).peak
    weights = FLOAT * sum(p.numel() for p in task.model().parameters())
    relus, loss, pictures = 2 * BATCH * WIDTH * FLOAT, BATCH * CLASSES * FLOAT, BATCH * INPUTS * FLOAT
    yours = f"{answer:,.0f} bytes"
    if _near(answer, true):
        return Verdict(True, asked, yours)
    shared = "The ReLU and the layer after it keep the same piece of memory."
    there = "What was there before the forward pass is no activation."
    for given, mistake, hint in [
        (2 * relus + loss + pictures, "the batch too, and every ReLU's output twice", f"{shared} {there}"),
        (2 * relus + loss, "every ReLU's output twice", shared),
        (2 * relus, "every ReLU's output twice, without the loss", f"{shared} The loss keeps something too."),
        (2 * (relus + loss), "everything twice", f"{shared} A linear layer's output is not in the table."),
        (relus, "the hidden layers without the loss", "The last line of the table keeps something too."),
        (relus + loss + pictures, "the batch too", there),
        (relus + pictures, "the batch too, without the loss", f"{there} The loss keeps something."),
        (relus + loss + weights, "the weights too", there),
        (weights, "the weights", there),
        (true / FLOAT, "numbers, not bytes", "A float32 takes 4 bytes."),
        (true / BATCH, "one picture", "The whole batch is in the forward pass at once."),
        (true / 1e3, "thousands of bytes", "Bytes are asked for."),
        (true / 1e6, "millions of bytes", "Bytes are asked for."),
    ]:
        if _near(answer, given):
            return Verdict(False, asked, f"{yours}, which is {mistake}", hint)
    way = "too many" if answer > true else "too few"
    hint = "Go through the table line by line, and count each tensor once: rows times columns times 4 bytes."
    return Verdict(
        False, asked, f"{yours}, {way} by a factor of {max(answer, true) / max(1, min(answer, true)):.2f}", hint
    )


def _near(given: float, true: float) -> bool:
    return abs(given - true) <= 0.01 * true


# -- 01.2: an optimiser with three faults ------------------------------------------------------------------------------

Train = Callable[..., Any]
LR = 0.1


class _Bowl(nn.Module):
    """Loss 1/2 sum(h (w - batch)^2): its gradient h (w - batch) points another way with each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
        self.b = nn.Parameter(torch.tensor([0.7], dtype=torch.float64))

    def forward(self, batch: Tensor) -> Tensor:
        h = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
        return 0.5 * ((h * (self.w - batch)) ** 2).sum() + 0.5 * ((self.b - batch[0]) ** 2).sum()


def _batches(steps: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    return [torch.randn(3, dtype=torch.float64, generator=random) for _ in range(steps)]


def _weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def _path(train: Train, steps: int, momentum: float, weight_decay: float) -> list[Tensor]:
    """The weights before each step, and after the last: they are noted whenever a loss is asked for."""
    model, path = _Bowl(), []

    def loss(module: nn.Module, batch: Tensor) -> Tensor:
        path.append(_weights(model))
        value: Tensor = module(batch)
        return value

    train(model, loss, _batches(steps), LR, momentum, weight_decay)
    return [*path, _weights(model)]


def _torch(keep_gradients: bool = False, late: bool = False, beside: bool = False, **changed: Any) -> Train:
    """torch's own SGD as a `Train`, or a version of it that is wrong in a known way.

    late: each step goes where the one before should have gone.  beside: decay goes past the velocity.
    """

    def train(model: nn.Module, loss: Any, batches: Any, lr: float, momentum: float, weight_decay: float) -> None:
        rates: dict[str, Any] = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": 0 if beside else weight_decay,
            "dampening": 0.0,
        }
        rates |= {key: change(rates) for key, change in changed.items() if key != "nesterov"}
        weights: list[Tensor] = list(model.parameters())
        velocities: list[Tensor | None] = [torch.zeros_like(p) for p in weights]
        steps = [torch.zeros_like(p) for p in weights]
        for batch in batches:
            if not keep_gradients:
                model.zero_grad()
            loss(model, batch).backward()
            before = [p.detach().clone() for p in weights]
            with torch.no_grad():
                for p in weights if beside else []:
                    p.mul_(1 - lr * weight_decay)
                grads = [p.grad for p in weights if p.grad is not None]
                sgd(weights, grads, velocities, foreach=False, maximize=False, nesterov="nesterov" in changed, **rates)
                for k, p in enumerate(weights if late else []):
                    step = p - before[k]
                    p.copy_(before[k] + steps[k])
                    steps[k] = step

    return train


# (setting, steps, momentum, weight decay, [(a known mistake, what it looks like, a hint)])
TRIALS: list[tuple[str, int, float, float, list[tuple[Train, str, str]]]] = [
    (
        "without momentum and weight decay", 3, 0.0, 0.0,
        [
            (_torch(keep_gradients=True), "as if .grad still held the gradients of the steps before",
             "backward() adds to .grad. Who sets it back, and when?"),
            (_torch(late=True), "one step late: it goes where the step before should have gone",
             "Does the weight move before the new gradient is in the velocity, or after?"),
            (_torch(lr=lambda rates: -rates["lr"]), "uphill", "A step goes against the gradient."),
        ],
    ),
    (
        "with weight decay only", 3, 0.0, 0.5,
        [
            (_torch(weight_decay=lambda rates: -rates["weight_decay"]),
             "as if the decay pushed the weights away from zero",
             "Weight decay is the gradient of ½·λ·w², which is λ·w. With which sign does a gradient enter g?"),
            (_torch(weight_decay=lambda rates: 0.0), "as if there were no weight decay",
             "Where does weight_decay enter?"),
        ],
    ),
    (
        "with momentum only", 4, 0.9, 0.0,
        [
            (_torch(momentum=lambda rates: 0.0), "as if there were no momentum", "What of the old velocity is kept?"),
            (_torch(dampening=lambda rates: rates["momentum"]), "as if the new gradient were damped by 1 − momentum",
             "The velocity keeps a share of its past and takes the whole of the new gradient."),
            (_torch(nesterov=True), "as with Nesterov's momentum",
             "Here a weight moves by the velocity itself."),
        ],
    ),
    (
        "with momentum and weight decay", 4, 0.9, 0.5,
        [
            (_torch(beside=True), "as if the decay went past the velocity, as in AdamW",
             "In torch.optim.SGD the decay is part of the gradient that the velocity takes."),
        ],
    ),
]  # fmt: skip


def _repair(answer: Any) -> Verdict:
    expected = "after each of 4 steps the weights of torch.optim.SGD, to 9 digits, with and without momentum and decay"
    if not callable(answer):
        return Verdict(False, expected, f"{answer!r}, which is no function", "Put your repaired function here: sgd.")
    for setting, steps, momentum, decay, mistakes in TRIALS:
        right = _path(_torch(), steps, momentum, decay)
        yours = _path(answer, steps, momentum, decay)
        fault = _first_fault(yours, right)
        if fault is None:
            continue
        step, words, hint = fault
        for other, like, advice in mistakes:
            if _first_fault(yours, _path(other, steps, momentum, decay)) is None:
                words, hint = like, advice
        return Verdict(False, expected, f"{setting}, step {step} is the first that goes wrong: {words}", hint)
    return Verdict(True, expected, "the same path")


def _first_fault(yours: list[Tensor], right: list[Tensor]) -> tuple[int, str, str] | None:
    """The first step that moves the weights otherwise than it should, and which way; None if none does."""
    if len(yours) != len(right):
        hint = "Make one step for each batch, in one loop over the batches."
        return len(yours), f"{len(yours) - 1} of {len(right) - 1} batches were taken", hint
    for step in range(1, len(right)):
        if torch.allclose(yours[step], right[step], rtol=1e-9, atol=1e-12):
            continue
        went, should = yours[step] - yours[step - 1], right[step] - right[step - 1]
        if not went.any():
            hint = "Is the velocity still zero when the weight moves? Is the parameter itself written, in place?"
            return step, "the weights do not move", hint
        along = float(went @ should / (should @ should))
        way = "the wrong way, " if along < 0 else ""
        words = f"the weights go {way}{abs(along):.2f} times as far as they should along the right direction"
        return step, words, "Write one step with numbers on paper: gradient, decay, velocity, weight."
    return None


# -- 01.3: a first layer that hardly counts ----------------------------------------------------------------------------

LEAST, MOST, WEIGHTS = 1.85, 1_250_000, 15_000_000


def _design(answer: Any) -> Verdict:
    expected = f"(width, hidden) with {LEAST} times the operations in backward, at most {MOST:,} live bytes at batch 64"
    pair = isinstance(answer, (tuple, list)) and len(answer) == 2 and all(type(n) is int and n > 0 for n in answer)
    if not pair or answer[1] > 200:
        return Verdict(False, expected, f"{answer!r}", "Give two whole numbers, (width, hidden), hidden at most 200.")
    width, hidden = answer
    if INPUTS * width + (hidden - 1) * width**2 > WEIGHTS:
        return Verdict(
            False, expected, f"more than {WEIGHTS:,} weights", "That is too large to try. Start near (256, 3)."
        )
    task = _pictures(width, hidden)
    beta = counted_beta(task, task.model(), _batch(64))
    peak = live_activations(task, task.model(), _batch(64)).peak
    yours = f"{beta:.3f} times the operations, {peak:,} live bytes"
    if peak > MOST:
        hint = "Too much memory: live activations grow with width × hidden, the weights do not matter."
    else:
        hint = (
            "The first layer still weighs too much: it needs no gradient for its input, so it counts once, not twice."
        )
    return Verdict(beta >= LEAST and peak <= MOST, expected, yours, hint)


EXERCISES = [
    Exercise("01.1", "The peak from the shapes", "predict", 10, _peak),
    Exercise("01.2", "An optimiser with three faults", "repair", 25, _repair),
    Exercise("01.3", "A first layer that hardly counts", "design", 15, _design, graded=False),
]
