"""Lesson 05, layer-wise updates: gradient memory counted with hooks, and the checks of its exercises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..figures.update_waterfall import HERE, UpdateWaterfall
from ..hooks import Gradients, Grads
from ..process import seeded
from ..replica import trainable
from .exercise import Exercise, Verdict, is_number, same_weights

LR = 0.1


def gradient_memory(
    model: nn.Module, loss: Tensor, update: str, cut: str | list[str] = "module"
) -> tuple[int, list[tuple[str, str, int]]]:
    """Back-propagate ``loss`` through minilayup's `Gradients`; count the bytes of the gradients that are alive.

    Returns:
        The peak, and each event in order: (layer's name, "ready" or "written", bytes alive just after it).  Only
        finished gradients count, not what autograd holds on the way to them.
    """
    layers = list(trainable(model, cut))
    names, leaves = [name for name, _, _ in layers], [own for _, _, own in layers]
    alive = peak = 0
    events = []

    def arrived(leaf: Tensor) -> None:
        nonlocal alive, peak
        assert leaf.grad is not None
        alive += leaf.grad.nbytes
        peak = max(peak, alive)

    def ready(index: int) -> None:
        events.append((names[index], "ready", alive))

    def write(index: int, grads: Grads) -> None:
        nonlocal alive
        for parameter, grad in zip(leaves[index], grads):
            if grad is not None:
                parameter.data.add_(grad, alpha=-LR)
                alive -= grad.nbytes
        events.append((names[index], "written", alive))

    handles = [leaf.register_post_accumulate_grad_hook(arrived) for own in leaves for leaf in own]
    gradients = Gradients(leaves, names, ready, write, update)  # its hooks come after `arrived`
    loss.backward()
    gradients.finish()
    for handle in handles:
        handle.remove()
    return peak, events


# -- 05.1 ----------------------------------------------------------------------------------------------------------
class Stack(nn.Module):
    """The network of exercise 05.1: its middle layer is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(784, 100)
        self.middle = nn.Linear(100, 100)
        self.last = nn.Linear(100, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, 10] of rows [B, 784]."""
        x = F.relu(self.first(x))
        for _ in range(2):
            x = F.relu(self.middle(x))
        out: Tensor = self.last(x)
        return out


def _stack_peak(update: str) -> int:
    with seeded(0):
        model = Stack()
        loss = F.cross_entropy(model(torch.randn(8, 784)), torch.randint(10, (8,)))
    return gradient_memory(model, loss, update)[0]


def _peaks(answer: Any) -> Verdict:
    expected = "the peak of the gradients' bytes, {'block': …, 'layer': …}, to the byte"
    numbers = isinstance(answer, dict) and answer.keys() == {"block", "layer"}
    if not numbers or any(not is_number(v) for v in answer.values()):
        return Verdict(False, expected, f"{answer!r}", "Give a dict with two numbers of bytes, as in the stub.")
    true = {update: _stack_peak(update) for update in ("block", "layer")}
    sizes = {name: sum(p.nbytes for p in own) for name, _, own in trainable(Stack())}
    weights = {name: own[0].nbytes for name, _, own in trainable(Stack())}
    wrong = {
        "block": [
            (sum(sizes.values()) + sizes["middle"], "the middle layer's gradient counted twice",
             "Both uses add to one .grad."),
            (sum(weights.values()), "the weights' gradients without the biases'", "A bias has a gradient too."),
            (true["block"] / 4, "the numbers counted, not their bytes", "A float32 takes 4 bytes."),
            (2 * true["block"], "twice the bytes of the gradients", "The weights themselves are not asked for."),
            (true["layer"], "one layer's gradient", "Block writing keeps every gradient until the backward pass ends."),
        ],
        "layer": [
            (0, "no gradient at all", "A gradient has to be there before it can be written. Which is the largest?"),
            (sizes["last"], "the last layer's gradient", "It is the first to be written, not the largest."),
            (true["block"], "all gradients at once", "A layer's gradient is freed before the next one is finished."),
            (true["block"] / 3, "the mean of the three layers", "The peak is asked for: the worst moment."),
            (weights["first"], "the weight without its bias", "The layer is written when both are there."),
            (true["layer"] / 4, "the numbers counted, not their bytes", "A float32 takes 4 bytes."),
        ],
    }  # fmt: skip
    for update in ("block", "layer"):
        given = answer[update]
        if abs(given - true[update]) < 0.5:
            continue
        for value, what, hint in wrong[update]:
            if abs(given - value) < 0.5:
                return Verdict(False, expected, f"{update}: {given:,.0f} bytes, which is {what}", hint)
        more = "too many" if given > true[update] else "too few"
        hint = "Add up the bytes of the gradients that are there at the worst moment of the backward pass."
        return Verdict(False, expected, f"{update}: {given:,.0f} bytes, which is {more}", hint)
    return Verdict(True, expected, f"{answer['block']:,.0f} and {answer['layer']:,.0f} bytes")


# -- 05.2 ----------------------------------------------------------------------------------------------------------
class Tied(nn.Module):
    """A small network whose last layer uses the first one's weight, if ``tied``."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 8, bias=False), nn.Linear(8, 6), nn.Linear(6, 8, bias=False)
        if tied:
            self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, 8] of rows [B, 6]."""
        logits: Tensor = self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))
        return logits


Install = Callable[[nn.Module, float, int], None]


def _train(install: Install | None, tied: bool, batches: int, parts: int) -> tuple[nn.Module, int]:
    """Train the small network on fixed rows, with ``torch.optim.SGD`` if nothing is to be installed.

    Returns the network, and the peak of the bytes in ``.grad`` during the last backward pass.
    """
    with seeded(1):
        model = Tied(tied)
        x, y = torch.randn(batches, parts, 4, 6), torch.randint(8, (batches, parts, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR) if install is None else None
    parameters = list(model.parameters())
    alive = [0]

    def count(leaf: Tensor) -> None:
        alive.append(sum(p.grad.nbytes for p in parameters if p.grad is not None))

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(count)
    if install is not None:
        install(model, LR, parts)
    for batch in range(batches):
        if optimizer is not None:
            optimizer.zero_grad()
        for part in range(parts):
            del alive[1:]
            loss = F.cross_entropy(model(x[batch, part]), y[batch, part]) / parts
            loss.backward()
        if optimizer is not None:
            optimizer.step()
    return model, max(alive)


CASES = [  # (tied, batches, parts, what it is, what is wrong, hint)
    (False, 1, 1, "one batch, no tied weight", "a single step already differs",
     "Follow one parameter by hand: x -= lr * gradient, once."),
    (False, 3, 1, "three batches", "the first step is right, later ones are not: the batch before is still in .grad",
     "A gradient that has been written must be freed, or the next backward() adds to it."),
    (True, 1, 1, "a tied weight", "the tied weight is written twice",
     "Two modules hold this one parameter, so walking the modules finds it twice. How many hooks has it?"),
    (False, 2, 3, "batches of three micro-batches", "layers are written before all micro-batches are in",
     "The hook fires at each backward(). At which of them is the batch's gradient complete?"),
    (True, 3, 2, "a tied weight and micro-batches together", "the two do not work together",
     "Count arrivals for each parameter, not for each module."),
]  # fmt: skip


def _repaired(answer: Any) -> Verdict:
    expected = "the bits of torch.optim.SGD, each layer written during the backward pass and its gradient freed"
    if not callable(answer):
        return Verdict(False, expected, f"{answer!r}, which cannot be called", "Give the function itself.")
    for tied, batches, parts, case, what, hint in CASES:
        try:
            model, _ = _train(answer, tied, batches, parts)
        except (RuntimeError, TypeError, AttributeError) as error:
            return Verdict(False, expected, f"{case}: {type(error).__name__}: {error}", hint)
        if any(p._backward_hooks for p in model.parameters()):
            return Verdict(
                False, expected, "uses register_hook, a gradient hook, which runs before .grad is there",
                "It is given the gradient, and what it returns takes the gradient's place. "
                "register_post_accumulate_grad_hook is given the parameter.",
            )  # fmt: skip
        if same_weights(model, _train(answer, tied, 0, parts)[0]):
            hint = "Which line changes a parameter, and at which backward() is it reached?"
            return Verdict(False, expected, f"{case}: no weight is ever written", hint)
        if not same_weights(model, _train(None, tied, batches, parts)[0]):
            return Verdict(False, expected, f"{case}: {what}", hint)
        if any(p.grad is not None for p in model.parameters()):
            hint = "The bits are right, the memory is not. When may .grad be let go?"
            return Verdict(False, expected, f"{case}: gradients are not freed after they were written", hint)
    model, peak = _train(answer, False, 2, 1)
    whole = sum(p.nbytes for p in model.parameters())
    if peak >= whole:
        hint = "Write a parameter in its own hook, not all of them in the last hook that fires."
        return Verdict(False, expected, "block writing: all gradients are alive at once", hint)
    return Verdict(True, expected, f"bits equal in {len(CASES)} cases; at most {peak} of {whole} bytes in .grad")


# -- 05.3 ----------------------------------------------------------------------------------------------------------
def _middle(answer: Any) -> Verdict:
    expected = "a state line of the figure with 8 layers, in which layers gain, but neither layer 1 nor layer 8"
    if not isinstance(answer, str):
        return Verdict(False, expected, f"{answer!r}, which is no text", "Copy the line below the figure.")
    figure = UpdateWaterfall()
    figure.restore(answer)
    figure.set(ages=HERE)
    saved = figure.data()["saved"]
    if len(saved) != 8:
        return Verdict(False, expected, f"{len(saved)} layers", "Set the number of layers first.")
    younger = [k + 1 for k, value in enumerate(saved) if value > 0]
    if not younger:
        hint = "Thread 2 has to read while gradients wait. At offset 0 it reads when thread 1 does."
        return Verdict(False, expected, "no layer gains", hint)
    which = f"layers {younger[0]} to {younger[-1]} gain" if len(younger) > 1 else f"layer {younger[0]} gains"
    if 8 in younger:
        hint = "Layer 8 gains while its read falls before the block write. Let thread 2 come later."
        return Verdict(False, expected, f"{which}: the last one too", hint)
    if len(younger) < 3:
        hint = "The longer the backward pass against the forward pass, the more layers gain. Which control is that?"
        return Verdict(False, "as asked, and at least three layers gain", f"{which}: too few", hint)
    return Verdict(True, expected, which)


EXERCISES = [
    Exercise("05.1", "Gradient memory at its peak", "predict", 10, _peaks),
    Exercise("05.2", "A layer-wise optimiser with three faults", "repair", 30, _repaired),
    Exercise("05.3", "When the last layer gains nothing", "design", 10, _middle, graded=False),
]
