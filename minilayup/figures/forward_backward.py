"""F forward and B backward threads with a pool of views between them, twice: `ideal`, a closed form, and `virtual_run`,
PD-ASGD's own programs on the virtual clock, with passes that only take time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

from .. import observe
from ..clocks import VirtualClock
from ..errors import number, positive_int
from ..methods import PDASGD
from ..run import Run

LAYERS = 4  # of the CNN: a forward pass reads one after the other
JITTER = 0.1  # sigma of a log-normal factor on each pass
BATCHES = 150  # of a virtual run; the first 60 only fill the pool


# -- closed form -------------------------------------------------------------------------------------------------------
class Ideal(NamedTuple):
    """What passes of constant length give.

    rate: batches a second.  limit: what sets it, "the forward threads", "the backward threads" or "the cores".
    in_flight: batches that have begun and are not yet written, on average.  staleness: mean.
    """

    rate: float
    limit: str
    in_flight: float
    staleness: float


def limits(forward: int, backward: int, t_f: float, t_b: float, slack: int, cores: int) -> dict[str, float]:
    """The batches a second that each part of the machine allows; the least of them is the throughput.

    A batch takes t_f + t_b seconds of a core, and as long of a view.  The pool's limit is never the least: with a view
    for each thread, (F + B) / (t_f + t_b) lies between F / t_f and B / t_b.
    """
    return {
        "the forward threads": forward / t_f,
        "the backward threads": backward / t_b,
        "the cores": cores / (t_f + t_b),
        "the pool": (forward + backward + slack) / (t_f + t_b),
    }


def ideal(forward: int, backward: int, t_f: float, t_b: float, slack: int, cores: int) -> Ideal:
    """Throughput, batches in flight and mean staleness of F forward : B backward with whole-model writes.

    Where the backward threads are slower, every view of the pool is taken; where the forward threads are, the queue is
    empty and each batch is in flight for t_f + t_b.  Whatever is in flight when a batch is read is written before it.
    Too few cores make all threads slower alike: the order of events stays, and with it these two numbers.
    """
    allowed = limits(forward, backward, t_f, t_b, slack, cores)
    limit = min(allowed, key=lambda part: allowed[part])
    full = forward / t_f >= backward / t_b
    in_flight = float(forward + backward + slack) if full else forward * (t_f + t_b) / t_f
    return Ideal(allowed[limit], limit, in_flight, in_flight - 1)


# -- virtual run -------------------------------------------------------------------------------------------------------
class Flight(NamedTuple):
    """When a batch's forward pass began and ended, when its backward pass began, and when it was written."""

    begun: float
    handed_on: float
    taken: float
    written: float


class Timer:
    """Stands for a view: its passes only let time pass."""

    def __init__(self, passes: Passes) -> None:
        self.passes, self.begun, self.handed_on = passes, 0.0, 0.0

    def forward(self, batch: int) -> None:
        """Takes the time of a forward pass."""
        self.begun = self.passes.clock.now()
        self.passes.work("forward")
        self.handed_on = self.passes.clock.now()

    def backward(self, loss: None) -> None:
        """Takes the time of a backward pass; then the whole model is written."""
        taken = self.passes.clock.now()
        self.passes.work("backward")
        self.passes.flights.append(Flight(self.begun, self.handed_on, taken, self.passes.clock.now()))


class Passes:
    """Stands for a `Run`: has what PD-ASGD's programs ask for, without a model and without data."""

    write = None

    def __init__(self, seconds: dict[str, float], batches: int, programs: int, seed: int) -> None:
        self.clock, self.flights = VirtualClock(), list[Flight]()
        self._seconds, self._left = seconds, iter(range(batches))
        self._randoms = [observe.source(index, seed) for index in range(programs)]

    def replica(self) -> None:
        """There is none."""

    def view(self, *_: Any) -> Timer:
        """A view of the pool."""
        return Timer(self)

    def batches(self, worker: int) -> Iterator[int]:
        """Numbers, until there are enough."""
        yield from self._left

    def work(self, kind: str) -> None:
        """Let the time of a pass go by."""
        own = self._randoms[self.clock.program.index]
        self.clock.sleep(self._seconds[kind] * observe.jitter(own, JITTER))


@dataclass(frozen=True)
class VirtualRun:
    """What a virtual run leaves; seconds are virtual.

    rate: batches a second.  in_flight, peak: batches begun and not yet written, mean and most.  staleness: mean over
    layers.  busy: {"forward", "backward"}: share of the time that such a thread computes.  crowd: {threads: share of
    the time that so many compute at once}.
    """

    rate: float
    in_flight: float
    peak: int
    staleness: float
    busy: dict[str, float]
    crowd: dict[int, float]

    def speed(self, cores: int) -> float:
        """How fast all this goes on so many cores, from 0 to 1.

        While n threads compute on C < n cores, each has C / n of one.  That is the same for all of them, so the run
        takes longer, and nothing else about it changes.
        """
        return 1 / sum(share * max(1.0, threads / cores) for threads, share in self.crowd.items())

    def speed_up(self, cores: int) -> float:
        """Work done on so many cores over what one thread would do: the threads that compute, times their speed."""
        return self.speed(cores) * sum(share * threads for threads, share in self.crowd.items())


@lru_cache(maxsize=4096)
def virtual_run(
    forward: int, backward: int, slack: int, t_f: float, t_b: float, seed: int = 0, batches: int = BATCHES
) -> VirtualRun:
    """Run PD-ASGD's own programs on the virtual clock, with a core for each thread and passes that only take time."""
    method = PDASGD(forward, backward, slack, update="block")
    number("t_f", t_f, 0, open_low=True), number("t_b", t_b, 0, open_low=True)
    passes = Passes({"forward": t_f, "backward": t_b}, positive_int("batches", batches, 100), method.threads, seed)
    programs = method.programs(cast(Run, passes))
    for index, program in enumerate(programs):
        program.index = index
    passes.clock.run(programs)
    return _measure(passes.flights, forward, backward)


def _measure(flights: list[Flight], forward: int, backward: int) -> VirtualRun:
    """The middle of the run: without its first 60 batches, and without its end, when no forward pass begins."""
    ends = [flight.written for flight in flights]  # in order: a flight is noted when it is written
    first, last = ends[59], max(flight.begun for flight in flights)
    span = last - first
    kept = [flight for flight in flights if first < flight.written <= last]
    stale = [
        bisect_left(ends, f.written) - bisect_right(ends, f.begun + layer / LAYERS * (f.handed_on - f.begun))
        for f in kept
        for layer in range(LAYERS)
    ]

    def clip(start: float, end: float) -> float:
        return max(0.0, min(end, last) - max(start, first))

    works = {
        "forward": [(f.begun, f.handed_on) for f in flights],
        "backward": [(f.taken, f.written) for f in flights],
    }
    threads = {"forward": forward, "backward": backward}
    busy = {kind: sum(clip(*work) for work in works[kind]) / span / threads[kind] for kind in works}
    crowd = shares(works["forward"] + works["backward"], first, last)
    flying = shares([(f.begun, f.written) for f in flights], first, last)
    return VirtualRun(
        rate=len(kept) / span,
        in_flight=sum(count * share for count, share in flying.items()),
        peak=max(flying),
        staleness=sum(stale) / len(stale),
        busy=busy,
        crowd=crowd,
    )


def shares(spans: list[tuple[float, float]], first: float, last: float) -> dict[int, float]:
    """{n: share of the time from first to last that exactly n of these spans cover}."""
    edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    found: Counter[int] = Counter()
    count, before = 0, first
    for at, step in edges:
        at = min(max(at, first), last)
        if at > before:
            found[count] += at - before  # type: ignore[assignment]
            before = at
        count += step
    return {n: seconds / (last - first) for n, seconds in found.items()}
