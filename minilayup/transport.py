"""How a put gets from one replica into another: in process, at once or over a link with latency, bandwidth and loss.

A put is one-sided: the sender (or, over a link, whoever carries the message) merges into the receiver's layer, and the
receiver takes no part.  A merge counts as a write: it raises the layer's version.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from .errors import choose, number
from .gossip import Exchange, Message
from .replica import Layer, Replica
from .threads import Clock


@dataclass(frozen=True)
class Link:
    """What lies between two workers.

    Args:
        latency: seconds from sending to arrival (the clock's: virtual ones on the virtual clock).
        bandwidth: bytes/s of each directed pair; messages of one pair queue up.
        loss: share of messages that never arrive.  An answer to a message (pair average) is repeated until it does.
        lost: what becomes of a lost push-sum message: "counted" (its mass is gone, and reported) or "returned" (the
            sender notices and takes its mass and weights back).
    """

    latency: float = 0.0
    bandwidth: float = math.inf
    loss: float = 0.0
    lost: str = "counted"

    def __post_init__(self) -> None:
        number("latency", self.latency, 0)
        if self.bandwidth != math.inf:
            number("bandwidth", self.bandwidth, 0, open_low=True)
        number("loss", self.loss, 0, 1)
        choose("lost", self.lost, ("counted", "returned"))

    def all_reduce_time(self, size: int, workers: int) -> float:
        """Seconds of a ring all-reduce of ``size`` bytes: 2 (n-1) messages of size/n one after the other."""
        return 2 * (workers - 1) * (self.latency + size / workers / self.bandwidth)


class InProcess:
    """Puts between replicas of one process.

    Attributes:
        bytes: [writer], bytes put by each program, answers included.
        merges, skipped, lost: [writer], messages merged, not sent (by the rule), dropped.
    """

    def __init__(self, clock: Clock, exchange: Exchange, link: Link | None, writers: int) -> None:
        self._clock, self.exchange, self.link = clock, exchange, link
        self._courier = writers - 1  # the last writer: who merges a message that was on its way
        self.bytes, self.merges, self.skipped, self.lost = ([0] * writers for _ in range(4))
        self._free: dict[tuple[int, int], float] = {}  # when the link of a pair has sent what was put on it

    def put(self, mine: Replica, theirs: Replica, layer: int, writer: int, source: random.Random) -> None:
        """Put one layer of a replica into another's, as the exchange rule says.  Never waits."""
        i, j = mine.worker, theirs.worker
        message = self.exchange.send(i, j, mine.layers[layer])
        if message is None:
            self.skipped[writer] += 1
            return
        size = message.flat.nbytes
        self.bytes[writer] += size
        if self.link is None:
            reply = self.exchange.receive(i, j, theirs.layers[layer], message)
            self._merged(theirs.layers[layer], writer)
            if reply is not None:
                self.bytes[writer] += reply.flat.nbytes
                self.exchange.settle(i, j, mine.layers[layer], reply)
                self._merged(mine.layers[layer], writer)
            return
        message = message._replace(flat=message.flat.clone())  # the sender goes on writing its layer
        if source.random() < self.link.loss:
            self.lost[writer] += 1
            arrive = partial(self._lose, mine, theirs, layer, message)
        else:
            arrive = partial(self._arrive, mine, theirs, layer, message)
        self._clock.call_later(self._delay(i, j, size), arrive)

    def _delay(self, i: int, j: int, size: int) -> float:
        assert self.link is not None
        now = self._clock.now()
        free = self._free[i, j] = max(now, self._free.get((i, j), 0.0)) + size / self.link.bandwidth
        return free + self.link.latency - now

    def _arrive(self, mine: Replica, theirs: Replica, layer: int, message: Message) -> None:
        i, j = mine.worker, theirs.worker
        reply = self.exchange.receive(i, j, theirs.layers[layer], message)
        self._merged(theirs.layers[layer], self._courier)
        if reply is not None:
            self.bytes[self._courier] += reply.flat.nbytes
            self._clock.call_later(self._delay(j, i, reply.flat.nbytes), partial(self._settle, mine, j, layer, reply))

    def _settle(self, mine: Replica, j: int, layer: int, reply: Message) -> None:
        self.exchange.settle(mine.worker, j, mine.layers[layer], reply)
        self._merged(mine.layers[layer], self._courier)

    def _lose(self, mine: Replica, theirs: Replica, layer: int, message: Message) -> None:
        assert self.link is not None
        drop = self.exchange.returned if self.link.lost == "returned" else self.exchange.lost
        drop(mine.worker, theirs.worker, mine.layers[layer], message)

    def _merged(self, layer: Layer, writer: int) -> None:
        layer.writes[writer] += 1
        self.merges[writer] += 1


class AllReduce:
    """The mean over all workers: all bring their tensors, the last to arrive adds them up, in the workers' order."""

    def __init__(self, clock: Clock, workers: int, link: Link | None) -> None:
        self._clock, self._link = clock, link
        self._barrier = clock.barrier(workers)
        self._brought: list[Sequence[Tensor | None]] = [()] * workers
        self._mean: list[Tensor | None] = []
        self.bytes = [0] * workers

    def __call__(self, worker: int, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The mean of each tensor over all workers; a None counts as zeros, and stays None where all are."""
        self._brought[worker] = tensors
        self._barrier.wait(self._add_up)
        mean = self._mean  # a later call replaces the list, it does not change it
        size, workers = sum(t.nbytes for t in mean if t is not None), len(self._brought)
        self.bytes[worker] += 2 * (workers - 1) * size // workers
        if self._link is not None:
            self._clock.sleep(self._link.all_reduce_time(size, workers))
        return mean

    def _add_up(self) -> None:
        self._mean = []
        for column in zip(*self._brought, strict=True):
            there = [t for t in column if t is not None]
            self._mean.append(sum(there[1:], there[0]) / len(column) if there else None)
