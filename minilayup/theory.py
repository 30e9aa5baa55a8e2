"""Bounds and closed forms, to be held against runs.

Words: F forward and B backward programs; beta is the time of a backward pass over that of a forward pass; tau is a
layer's staleness (writes between read and write); eta the learning rate; lambda a curvature (Hessian eigenvalue).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .errors import number, positive_int


def throughput(forward: int, backward: int, beta: float) -> float:
    """Batches in the time of one forward pass, with truly parallel threads: ``min(F, B / beta)``.

    The slower of the two groups sets the pace; over one thread that is a speed-up of ``(1 + beta) min(F, B / beta)``.
    """
    number("beta", beta, 0, open_low=True)
    return min(positive_int("forward", forward), positive_int("backward", backward) / beta)


def speed_up(forward: int, backward: int, beta: float) -> float:
    """Throughput of F:B over that of one thread that does both passes; per thread it is at most 1."""
    return (1 + beta) * throughput(forward, backward, beta)


def hogwild_staleness(workers: int, layers: int, update: str = "block") -> float:
    """Mean staleness of ``workers`` equal threads over one replica, without jitter: every other thread writes each
    layer once a step, so what counts is the share of a step between a layer's read and its write.

    Under "block" each layer is read in the forward pass and written at the end; under "layer" the last layer is written
    soon after it is read.  Both are averaged over layers of equal cost, with beta = 2 and threads at random phases.
    """
    positive_int("workers", workers)
    beta, m = 2.0, positive_int("layers", layers)
    spans = []
    for layer in range(m):  # input side first: read at layer/m, gradient there after (m - layer) layers of backward
        read = layer / m
        written = 1 + beta if update == "block" else 1 + beta * (m - layer) / m
        spans.append((written - read) / (1 + beta))
    return (workers - 1) * sum(spans) / m


def straggler_speed(workers: int, factor: float) -> tuple[float, float]:
    """Samples/s with one worker ``factor`` times slower, over those with none: (synchronous, asynchronous).

    Synchronous: 1 / factor.  Asynchronous: (n - 1 + 1 / factor) / n.
    """
    n, k = positive_int("workers", workers), number("factor", factor, 1)
    return 1 / k, (n - 1 + 1 / k) / n


def delay_border(tau: int) -> float:
    """Largest ``eta * lambda`` at which gradient descent with a constant delay tau is stable on a quadratic.

    ``theta_{t+1} = theta_t - a theta_{t-tau}`` is stable if and only if ``0 < a < 2 sin(pi / (2 (2 tau + 1)))``.
    """
    return 2 * math.sin(math.pi / (2 * (2 * positive_int("tau", tau, at_least=0) + 1)))


def delayed_descent(a: float, tau: int, steps: int, start: float = 1.0) -> list[float]:
    """The trajectory of ``theta_{t+1} = theta_t - a theta_{t-tau}`` from a constant past: steps + 1 values."""
    path = [start] * (positive_int("tau", tau, at_least=0) + 1)
    for _ in range(steps):
        path.append(path[-1] - a * path[-1 - tau])
    return path[tau:]


def progress_shares(rates: Sequence[float], exchange: str) -> list[float]:
    """Each worker's share p_i r_i of the progress, in worker-speeds; their sum is the whole progress.

    Args:
        rates: batches a second of each worker, 1 for an unslowed one.
        exchange: "average" (p = 1/n), "push-sum" (p proportional to 1/rate) or "push" (proportional to rate).

    Scaled so that equal workers have 1 each: n times the conserved weight times the rate.
    """
    raw = {"average": [1.0] * len(rates), "push-sum": [1 / r for r in rates], "push": list(rates)}[exchange]
    return [len(rates) * weight / sum(raw) * rate for weight, rate in zip(raw, rates)]


def pair_contraction(workers: int) -> float:
    """Factor by which one exchange of a random pair (both to the midpoint) lowers the variance of the replicas, on
    average: 1 - 1 / (n - 1)."""
    return 1 - 1 / (positive_int("workers", workers, at_least=2) - 1)


def bias_bound(gradient: float, smoothness: float, eta: float, tau: int) -> float:
    """Bound on the gradient's bias under staleness: ``G a / (1 - a)``, ``a = alpha eta tau_max``; infinite for a >= 1.

    arXiv 2410.05985, version 3, read as: G the largest gradient norm, alpha the gradient's Lipschitz constant.
    """
    a = smoothness * eta * tau
    return gradient * a / (1 - a) if a < 1 else math.inf
