"""What the figure of lesson 04 must show, and the wrong answers that its exercises must tell apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minilayup import theory
from minilayup.figures.figure import Data
from minilayup.figures.staleness_lab import noisy_descent, wave

SEEDS = range(20)


def _late_diverges_noise_does_not(data: Data) -> bool:
    """Twenty times further out than it began; with noise as large, and any of 20 seeds, nearly at the minimum."""
    noisy = [noisy_descent(data["a"], data["tau"], 300, seed)[-1] for seed in SEEDS]
    return abs(data["path"][-1]) > 20 and not data["stable"] and max(map(abs, noisy)) < 0.01


def _rate_is_the_borders(data: Data) -> bool:
    """The same rate settles just below the border, diverges just above it; without delay it is far from diverging."""
    border = data["border"]
    below, above = (theory.delayed_descent(share * border, data["tau"], 2000) for share in (0.95, 1.05))
    fresh = theory.delayed_descent(1.05 * border, 0, 2000)
    return max(map(abs, below[-100:])) < 1e-2 and max(map(abs, above[-100:])) > 1e3 and abs(fresh[-1]) < 1e-9


def _measured_rates_follow_the_border(data: Data) -> bool:
    """A network's rates fall with the border, to a tenth and less: not to a third, where noise's would stay."""
    (_, alone), *others = data["measured"]
    near = all(0.8 < relative / _share(tau) < 1.4 for tau, relative in others)
    falls = all(b + 3 * data["spread"][k + 1] < a for k, ((_, a), (_, b)) in enumerate(zip(data["measured"], others)))
    noise = all(relative + 3 * spread < 1 / 3 for (tau, relative), spread in zip(others, data["spread"][1:]) if tau > 4)
    return alone == 1 and near and falls and noise


def _share(tau: float) -> float:
    """The border at a staleness between two whole numbers, over the one without delay."""
    below, part = int(tau), tau % 1
    return ((1 - part) * theory.delay_border(below) + part * theory.delay_border(below + 1)) / 2


FINDINGS: list[tuple[str, Callable[[Data], bool]]] = [
    ("StalenessLab tau=8 a=0.3", _late_diverges_noise_does_not),
    ("StalenessLab tau=8 a=0.3", _rate_is_the_borders),
    ("StalenessLab tau=3 a=0.3", lambda data: data["stable"] and abs(data["path"][-1]) < 0.2),
    ("StalenessLab tau=0 a=0.3", lambda data: data["border"] == 2 and abs(wave(1.99, 0)[0] - 0.99) < 1e-9),
    ("StalenessLab tau=8 a=0.3", _measured_rates_follow_the_border),
]


def _aliased(gradient: Any, theta: Any, lr: float, tau: int, steps: int) -> Any:
    """The planted fault as it stands."""
    past = [theta] * (tau + 1)
    for _ in range(steps):
        theta -= lr * gradient(past[-1 - tau])
        past.append(theta)
    return past[tau:]


def _newest(gradient: Any, theta: Any, lr: float, tau: int, steps: int) -> Any:
    past = [theta] * (tau + 1)
    for _ in range(steps):
        past.append(past[-1] - lr * gradient(past[-1]))
    return past[tau:]


def _one_short(gradient: Any, theta: Any, lr: float, tau: int, steps: int) -> Any:
    past = [theta] * (tau + 1)
    for _ in range(steps):
        past.append(past[-1] - lr * gradient(past[-max(tau, 1)]))
    return past[tau:]


def _half_copied(gradient: Any, theta: Any, lr: float, tau: int, steps: int) -> Any:
    """Copies what it appends, while the past before the start still moves."""
    past = [theta] * (tau + 1)
    for _ in range(steps):
        theta -= lr * gradient(past[-1 - tau])
        past.append(theta.copy())
    return past[tau:]


MUTANTS: dict[str, dict[str, tuple[Any, str]]] = {
    "04.1": {
        "staleness is noise, so any number will do": (10_000, "noise"),
        "divide the border without delay by N": (10, "1/N"),
        "divide it by the root of N": (100, "unstable"),
        "the staleness in place of the workers": (7, "workers does that staleness"),
        "no delay may remain": (1, "stable"),
        "a text": ("eight", "number"),
    },
    "04.2": {
        "the same rate as one worker": ({"lr": 0.2, "batch_size": 32}, "diverged"),
        "the rule of synchronous SGD: times N": ({"lr": 1.6, "batch_size": 32}, "synchronous"),
        "staleness is noise, so average more": ({"lr": 0.2, "batch_size": 256}, "less noisy, not less late"),
        "average more, at a stable rate": ({"lr": 0.025, "batch_size": 256}, "fewer"),
        "divide by the root of N": ({"lr": 0.2 / 8**0.5, "batch_size": 32}, "border"),
        "divide by the square of N": ({"lr": 0.2 / 64, "batch_size": 32}, "too slow"),
        "only a rate": (0.025, "batch_size"),
    },
    "04.3": {
        "every entry is one array": (_aliased, "same array"),
        "the gradient at the newest weights": (_newest, "fresh gradients"),
        "one update short": (_one_short, "tau = 0"),
        "a past that still moves": (_half_copied, "before the start"),
        "no function": (0.3, "function"),
    },
}
