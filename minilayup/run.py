"""What a method sees of a run: replicas, views, batches, writes, puts.  Nothing else."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from .budget import Batch, Budget
from .data import Stream
from .gossip import EXCHANGES
from .hooks import Grads
from .observe import Observer
from .replica import Layer, Replica
from .rules import Rule, Schedule
from .tasks import Task
from .threads import Clock
from .trace import Trace
from .transport import AllReduce, InProcess, Link
from .view import View

if TYPE_CHECKING:
    from .methods.base import Method


class Diverged(RuntimeError):
    """A loss or a weight is no longer finite."""


class Run:
    """One training run, as its programs see it.

    Attributes:
        workers: how many there are.
        clock: what programs wait with.
        model: with the initial weights; replicas are copies of it.
        samples, updates: trained so far.  A synchronous round is one update, elsewhere each batch is one.
    """

    def __init__(
        self,
        task: Task,
        method: Method,
        model: nn.Module,
        clock: Clock,
        budget: Budget,
        rule: Rule,
        schedule: Schedule,
        trace: Trace,
        *,
        link: Link | None = None,
        seed: int = 0,
        shuffle: bool = True,
        micro_batches: int = 1,
        layers: str | list[str] = "module",
        devices: Sequence[torch.device] = (torch.device("cpu"),),
    ) -> None:
        self.task, self.clock, self.budget = task, clock, budget
        self.rule, self.schedule, self.trace = rule, schedule, trace
        self.workers, self.link = method.workers, link
        self.replicas: list[Replica] = []
        self.samples = self.updates = 0
        self.observer: Observer  # set by the engine, which knows how time passes
        self.crossed: Callable[[], None] = lambda: None  # called after each batch or round; the engine evaluates there
        self.transport = InProcess(clock, EXCHANGES[method.exchange or "average"](), link, method.threads + 1)
        self.transport.exchange.begin(len(trace.layers), method.workers)
        self.all_reduce = AllReduce(clock, method.workers, link)
        self.writers = method.threads + 1  # one counter each, and one for whoever carries messages
        self.model, self.layers, self._devices, self._micro_batches = model, layers, devices, micro_batches
        self.seed = seed
        self._randoms = [random.Random(f"worker {worker} of seed {seed}") for worker in range(self.workers)]
        self._streams = self._make_streams(shuffle)
        self._drawn = [0] * self.workers  # batches that each worker has drawn from a stream of its own
        self.counting = threading.Lock()
        self._round_begins = clock.barrier(self.workers)
        self._round: int | None = None

    # -- data --------------------------------------------------------------------------------------------------------
    def _make_streams(self, shuffle: bool) -> list[Stream]:
        size = self.budget.batch_size
        if self.task.skew == 0:
            return [Stream(self.task.train, size, self.seed, shuffle)]
        shards = self.task.shards(self.workers, self.seed)
        return [Stream(shard, size, self.seed + worker, shuffle) for worker, shard in enumerate(shards)]

    def _batch(self, worker: int, index: int, samples: int) -> Batch:
        """With identical shares batch k is the same rows whoever takes it; else each worker has rows of its own."""
        if len(self._streams) == 1:
            rows = self._streams[0].rows(index)
        else:
            rows = self._streams[worker].rows(self._drawn[worker])
            self._drawn[worker] += 1
        self.clock.program.step = index
        return Batch(index, samples, self.task.train.batch(rows))

    def batches(self, worker: int) -> Iterator[Batch]:
        """The worker's batches, until the budget is spent or the run is stopped."""
        while (index := self.budget.take(self.clock)) is not None:
            yield self._batch(worker, index, index * self.budget.batch_size)

    def rounds(self, worker: int) -> Iterator[Batch]:
        """As `batches`, but every round gives all workers a batch or none, so that they can meet at a barrier."""
        while True:
            self._round_begins.wait(self._next_round)
            if self._round is None:
                return
            yield self._batch(worker, self._round + worker, self._round * self.budget.batch_size)

    def _next_round(self) -> None:
        if self._round is not None:
            self._count(self.workers)
        self._round = self.budget.take(self.clock, self.workers)

    def written(self, view: View) -> None:
        """A view's batch has been back-propagated (called by the observer)."""
        view.replica.batches += 1
        if self._round is None:  # with rounds, all workers' batches are counted where they meet
            self._count(1)

    def _count(self, batches: int) -> None:
        with self.counting:
            self.samples += batches * self.budget.batch_size
            self.updates += 1
        self.crossed()

    # -- weights -----------------------------------------------------------------------------------------------------
    def replica(self, worker: int = 0) -> Replica:
        """A replica with the run's initial weights, the same for all."""
        device = self._devices[worker % len(self._devices)]
        replica = Replica(copy.deepcopy(self.model), worker, self.writers, self.layers, device)
        if self.transport.exchange.sends_steps:
            for layer in replica.layers:
                layer.steps = torch.zeros_like(layer.flat)
        self.replicas.append(replica)
        return replica

    def view(
        self,
        replica: Replica,
        on_layer: Callable[[View, Layer, Grads], None],
        update: str = "layer",
        weights: str = "live",
    ) -> View:
        """A view over a replica; ``on_layer`` is what happens when a layer's gradients are to be written."""
        return View(replica, self.task.loss, on_layer, self.observer, update, weights, self._micro_batches)

    def random(self, worker: int) -> random.Random:
        """The worker's own source of random numbers (choice of peers, lost messages)."""
        return self._randoms[worker]

    def write(self, view: View, layer: Layer, grads: Grads) -> None:
        """Write a layer's gradients into the view's replica, now, without a lock."""
        assert view.batch is not None
        start = self.clock.now() if self.trace.on else 0.0
        if layer.steps is not None:
            layer.steps.sub_(layer.flat)
        self.rule.step(layer, grads, self.rule.lr * self.schedule(view.batch.samples))
        if layer.steps is not None:  # the sum of this worker's own steps: after minus before
            layer.steps.add_(layer.flat)
        program = view.program
        layer.writes[program.index] += 1
        if self.trace.on:
            read, version, end = view.read[layer.index], layer.version, self.clock.now()
            batch = view.batch.index
            fields = (program.worker, program.index, "write", layer.index, batch, read, version, start, end)
            self.trace.record(fields)

    def put(self, worker: int, peer: int, layer: Layer) -> None:
        """Put a layer of one worker's replica into another's, one-sided, as the method's exchange rule says."""
        program, start = self.clock.program, self.clock.now() if self.trace.on else 0.0
        self.transport.put(self.replicas[worker], self.replicas[peer], layer.index, program.index, self.random(worker))
        if self.trace.on:
            version, end = layer.version, self.clock.now()
            self.trace.record((worker, program.index, "put", layer.index, program.step, version, version, start, end))
