"""Gossip: what two replicas exchange, and who has a say.

An *exchange rule* says what a put carries and how the receiver merges it.  Each rule conserves something, with a weight
p_i for each replica; worker i's share of the progress is its rate times p_i.  Symmetric exchange has p = 1/n, uniform
push-sum has p proportional to 1/rate: the slow worker gathers mass and everyone gets equal say.

A rule never sees threads or clocks.  `minilayup.transport` calls ``send`` for the sender, ``receive`` for the receiver
when the message is there, and ``settle`` for the sender if the receiver had something to answer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .replica import Layer

if TYPE_CHECKING:
    pass

MASS_FLOOR = 1e-6  # a worker that only sends halves its mass each time: below this it keeps what it has
GRAIN = 2.0**-30  # float64 adds multiples of it without rounding up to 2**22, some eight million puts of a layer
RELAXATION = 0.2  # of the way to 1, at each send and each receive


class Message(NamedTuple):
    """One layer on its way: its flat storage (or a step), and the mass that travels with it."""

    flat: Tensor
    mass: float = 0.0


class Ledger:
    """The masses of all layers of all workers.  Every cell has one writer, so no mass is lost in a race.

    Mass of i = 1 + taken by i - sent by i + relaxed.  All masses are multiples of `GRAIN`, so sums of them are exact.

    Attributes:
        sent, taken, lost: [layer, from, to], float64.  ``lost``: messages that were dropped on the way.
        relaxed: [layer, whose mass, who changed it].
    """

    def __init__(self, layers: int, workers: int) -> None:
        self.sent, self.taken, self.lost, self.relaxed = np.zeros((4, layers, workers, workers))

    def mass(self, layer: int, worker: int) -> float:
        """Push-sum weight of one worker's layer."""
        taken, sent, relaxed = self.taken[layer, :, worker], self.sent[layer, worker], self.relaxed[layer, worker]
        return float(1.0 + taken.sum() - sent.sum() + relaxed.sum())

    def in_flight(self, layer: int) -> float:
        """Mass that was sent and has neither arrived nor been lost."""
        return float(self.sent[layer].sum() - self.taken[layer].sum() - self.lost[layer].sum())


class Exchange:
    """Base of the exchange rules: no masses, nothing to answer.

    Attributes:
        conserves: what the rule keeps, in words.
        sends_steps: whether it sends steps rather than weights; then each layer keeps the sum of its own.
    """

    conserves = "nothing"
    sends_steps = False

    def begin(self, layers: int, workers: int) -> None:
        """A run with so many layers and workers begins."""
        self.ledger = Ledger(layers, workers)

    def send(self, i: int, j: int, mine: Layer) -> Message | None:
        """What worker i's put to j carries; None: nothing now."""
        raise NotImplementedError

    def receive(self, i: int, j: int, theirs: Layer, message: Message) -> Message | None:
        """Merge i's message into j's layer; what goes back to i, or None."""
        raise NotImplementedError

    def settle(self, i: int, j: int, mine: Layer, reply: Message) -> None:
        """Merge j's answer into i's layer."""

    def lost(self, i: int, j: int, mine: Layer, message: Message) -> None:
        """The message was dropped on its way and nobody will send it again."""

    def returned(self, i: int, j: int, mine: Layer, message: Message) -> None:
        """The message was dropped, and the sender takes back what it held."""
        self.lost(i, j, mine, message)

    def weight(self, layer: int, worker: int) -> float:
        """The worker's weight in the mean model (they need not sum to 1)."""
        return 1.0


class Average(Exchange):
    """Pair average: both sides go to the midpoint, as AD-PSGD's averaging step (Lian et al. 2018, arXiv 1710.06952).

    The receiver takes half the difference and answers with it, so the sum of the replicas is kept whatever is written
    meanwhile.  One exchange of a layer is open at a time: with latency, a second one would correct twice.
    """

    conserves = "the sum of the replicas"

    def begin(self, layers: int, workers: int) -> None:
        super().begin(layers, workers)
        self._open = [[False] * layers for _ in range(workers)]

    def send(self, i: int, j: int, mine: Layer) -> Message | None:
        if self._open[i][mine.index]:
            return None
        self._open[i][mine.index] = True
        return Message(mine.flat)

    def receive(self, i: int, j: int, theirs: Layer, message: Message) -> Message | None:
        difference = message.flat - theirs.flat
        theirs.flat.add_(difference, alpha=0.5)
        return Message(difference)

    def settle(self, i: int, j: int, mine: Layer, reply: Message) -> None:
        mine.flat.sub_(reply.flat, alpha=0.5)
        self._open[i][mine.index] = False

    def lost(self, i: int, j: int, mine: Layer, message: Message) -> None:
        self._open[i][mine.index] = False


class PushSum(Exchange):
    """Push-sum per layer, as GoSGD's sum-weights (Blot et al. 2019, arXiv 1804.01852): the sender halves its mass and
    sends its weights with it, the receiver takes the mean weighted by mass."""

    conserves = "the mass and the mass-weighted sum"

    def send(self, i: int, j: int, mine: Layer) -> Message | None:
        mass = math.floor(self.ledger.mass(mine.index, i) / 2 / GRAIN) * GRAIN
        if mass < MASS_FLOOR:
            return None
        self.ledger.sent[mine.index, i, j] += mass
        return Message(mine.flat, mass)

    def receive(self, i: int, j: int, theirs: Layer, message: Message) -> Message | None:
        total = self.ledger.mass(theirs.index, j) + message.mass
        theirs.flat.lerp_(message.flat, message.mass / total)
        self.ledger.taken[theirs.index, i, j] += message.mass
        return None

    def lost(self, i: int, j: int, mine: Layer, message: Message) -> None:
        self.ledger.lost[mine.index, i, j] += message.mass

    def returned(self, i: int, j: int, mine: Layer, message: Message) -> None:
        self.receive(i, i, mine, message)

    def weight(self, layer: int, worker: int) -> float:
        return self.ledger.mass(layer, worker)


class Relaxed(PushSum):
    """Push-sum whose masses relax towards 1 by a fifth at each send and each receive (ours): a slow worker no longer
    gathers mass, and nothing is kept exactly.  For wires over which nothing can be written back to the sender."""

    conserves = "nothing exactly; masses stay near 1"

    def send(self, i: int, j: int, mine: Layer) -> Message | None:
        message = super().send(i, j, mine)
        if message is not None:
            self._relax(mine.index, i, writer=i)
        return message

    def receive(self, i: int, j: int, theirs: Layer, message: Message) -> Message | None:
        super().receive(i, j, theirs, message)
        self._relax(theirs.index, j, writer=i)
        return None

    def _relax(self, layer: int, worker: int, writer: int) -> None:
        grains = round(RELAXATION * (1 - self.ledger.mass(layer, worker)) / GRAIN)
        self.ledger.relaxed[layer, worker, writer] += grains * GRAIN

    def weight(self, layer: int, worker: int) -> float:
        return 1.0


class Increment(Exchange):
    """Push the steps made since the last put of this layer; the receiver adds them.  Each step reaches one peer.

    Keeps the sum of all steps sent, but differences between replicas never decay: reported as drift."""

    conserves = "the total of the steps sent"
    sends_steps = True

    def send(self, i: int, j: int, mine: Layer) -> Message | None:
        assert mine.steps is not None
        unsent, mine.steps = mine.steps, torch.zeros_like(mine.steps)
        return Message(unsent)

    def receive(self, i: int, j: int, theirs: Layer, message: Message) -> Message | None:
        theirs.flat.add_(message.flat)
        return None

    def returned(self, i: int, j: int, mine: Layer, message: Message) -> None:
        assert mine.steps is not None
        mine.steps.add_(message.flat)


class Cumulative(Exchange):
    """Push the running sum of one's own steps; the receiver adds what is new since the last time (ours).  Each step
    reaches everyone once, also when messages are lost.  Costs one more copy of the layer per peer."""

    conserves = "every step, once at each replica that hears of it"
    sends_steps = True

    def begin(self, layers: int, workers: int) -> None:
        super().begin(layers, workers)
        self._seen: list[dict[tuple[int, int], Tensor]] = [{} for _ in range(workers)]  # by sender: one writer each

    def send(self, i: int, j: int, mine: Layer) -> Message | None:
        assert mine.steps is not None
        return Message(mine.steps)

    def receive(self, i: int, j: int, theirs: Layer, message: Message) -> Message | None:
        seen = self._seen[i].get((j, theirs.index))
        if seen is None:
            seen = self._seen[i][j, theirs.index] = torch.zeros_like(message.flat)
        new = message.flat - seen
        theirs.flat.add_(new)
        seen.add_(new)
        return None


EXCHANGES: dict[str, type[Exchange]] = {
    "average": Average,
    "push-sum": PushSum,
    "relaxed": Relaxed,
    "increment": Increment,
    "cumulative": Cumulative,
}
