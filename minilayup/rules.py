"""Update rules, one layer at a time, through ``torch.optim``'s functional forms; and learning-rate schedules.

A rule writes a layer's storage in place: ``x^l -= lr * opt(g^l)``.  Its state (momentum, …) belongs to the layer, so
all programs that write one replica share it, without a lock, as they share the weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from .errors import ArgumentError, number, positive_int
from .hooks import Grads
from .replica import Layer


@dataclass(frozen=True)
class Rule(ABC):
    """How a layer's gradients change its weights.  ``lr`` is the learning rate that a schedule scales."""

    lr: float

    @abstractmethod
    def begin(self, layer: Layer) -> Any:
        """The layer's state before the first step: one entry a parameter."""

    @abstractmethod
    def apply(self, tensors: list[Tensor], grads: list[Tensor], state: list[Any], lr: float) -> None:
        """Change ``tensors`` in place, and ``state`` with them."""

    def step(self, layer: Layer, grads: Grads, lr: float) -> None:
        """Write one layer.  Parameters without a gradient are left alone, as in ``torch.optim``."""
        if layer.state is None:
            layer.state = self.begin(layer)
        if all(grad is not None for grad in grads):  # `None in grads` would compare tensors, for 30 µs each
            self.apply(layer.tensors, grads, layer.state, lr)  # type: ignore[arg-type]
            return
        there = [k for k, grad in enumerate(grads) if grad is not None]
        state = [layer.state[k] for k in there]
        self.apply([layer.tensors[k] for k in there], [g for g in grads if g is not None], state, lr)
        for k, value in zip(there, state, strict=True):
            layer.state[k] = value


@dataclass(frozen=True)
class SGD(Rule):
    """Stochastic gradient descent, bit for bit ``torch.optim.SGD``.

    ``v = momentum v + (1 - dampening) (g + weight_decay x)``; ``x -= lr v``; Nesterov: ``x -= lr (g + momentum v)``.
    """

    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0

    def __post_init__(self) -> None:
        number("lr", self.lr, 0, math.inf)
        number("momentum", self.momentum, 0, 1)
        number("weight_decay", self.weight_decay, 0, math.inf)
        number("dampening", self.dampening, 0, 1)
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise ArgumentError(f"nesterov=True needs momentum > 0 and dampening = 0; momentum is {self.momentum}")

    def begin(self, layer: Layer) -> list[Tensor | None]:
        return [None] * len(layer.tensors)

    def apply(self, tensors: list[Tensor], grads: list[Tensor], state: list[Any], lr: float) -> None:
        if not self.momentum and not self.weight_decay:  # what sgd() below comes to, without its preparations
            for tensor, grad in zip(tensors, grads):
                tensor.add_(grad, alpha=-lr)
            return
        sgd(
            tensors,
            grads,
            state,
            foreach=False,
            fused=False,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=lr,
            dampening=self.dampening,
            nesterov=self.nesterov,
            maximize=False,
        )


@dataclass(frozen=True)
class AdamW(Rule):
    """Adam with decoupled weight decay, as ``torch.optim.AdamW`` (Loshchilov and Hutter 2019, arXiv 1711.05101)."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        number("lr", self.lr, 0, math.inf)
        number("weight_decay", self.weight_decay, 0, math.inf)
        number("eps", self.eps, 0, math.inf)
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise ArgumentError(f"betas={self.betas!r} is not allowed: give two numbers, such as (0.9, 0.999).")
        for beta in self.betas:
            number("betas", beta, 0, 1, open_high=True)

    def begin(self, layer: Layer) -> list[tuple[Tensor, Tensor, Tensor]]:
        return [(torch.zeros_like(t), torch.zeros_like(t), torch.tensor(0.0)) for t in layer.tensors]

    def apply(self, tensors: list[Tensor], grads: list[Tensor], state: list[Any], lr: float) -> None:
        means, squares, steps = (list(column) for column in zip(*state))
        adamw(
            tensors,
            grads,
            means,
            squares,
            [],
            steps,
            foreach=False,
            fused=False,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=lr,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )


# -- learning-rate schedules: samples seen -> factor on the rule's rate ------------------------------------------------
Schedule = Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """Factor 1."""

    def __call__(self, samples: int) -> float:
        return 1.0


@dataclass(frozen=True)
class WarmUp:
    """Linearly from 0 to 1 over the first ``samples`` samples, then as ``then`` says (counted from the end of it)."""

    samples: int
    then: Schedule = Constant()

    def __post_init__(self) -> None:
        positive_int("samples", self.samples)

    def __call__(self, samples: int) -> float:
        return (samples + 1) / self.samples if samples < self.samples else self.then(samples - self.samples)


@dataclass(frozen=True)
class Step:
    """Times ``factor`` after every ``every`` samples."""

    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        positive_int("every", self.every)
        number("factor", self.factor, 0, 1)

    def __call__(self, samples: int) -> float:
        return float(self.factor ** (samples // self.every))


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 at the start to ``floor`` at ``samples`` (Loshchilov and Hutter 2017, arXiv 1608.03983)."""

    samples: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        positive_int("samples", self.samples)
        number("floor", self.floor, 0, 1)

    def __call__(self, samples: int) -> float:
        done = min(samples / self.samples, 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2
