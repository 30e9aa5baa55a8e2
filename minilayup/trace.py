"""Every event is written down: who computed, wrote or put which layer of which batch, when, and at which version.

Each program appends to lists of its own, so there is no lock.  Events are kept in a bounded ring; the staleness of
every write is counted in histograms beside it, which never overflow.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .threads import Program


class Event(NamedTuple):
    """One stretch of work.  ``layer`` is -1 where no layer is meant; times in the clock's seconds.

    kind: "forward" or "backward" (one layer's share of the pass), "write" or "put".
    read, version: of the layer, when the batch's forward pass read it and just after this event.
    """

    worker: int
    program: int
    kind: str
    layer: int
    batch: int
    read: int
    version: int
    start: float
    end: float

    @property
    def staleness(self) -> int:
        """Of a write: writes to the layer between this batch's read of it and this write."""
        return self.version - 1 - self.read


Fields = tuple[int, int, str, int, int, int, int, float, float]  # what an `Event` is made of


class Trace:
    """The events of one run.

    Args:
        programs: who writes events.
        layers: the layers' names.
        capacity: events kept for each program; older ones are dropped (`dropped` counts them).
        on: False records nothing at all.
    """

    def __init__(self, programs: int, layers: Sequence[str], capacity: int = 20_000, on: bool = True) -> None:
        self.on, self.layers = on, list(layers)
        self.programs: list[Program] = []
        self._rings: list[deque[Fields]] = [deque(maxlen=capacity) for _ in range(programs)]
        self._counts = [0] * programs
        self._staleness: list[list[Counter[int]]] = [[Counter() for _ in layers] for _ in range(programs)]

    def record(self, event: Fields) -> None:
        """Append an event to the ring of its program, whose thread is the only one that may call this.

        A plain tuple in the order of `Event`: the garbage collector soon forgets it, a named one it visits again and
        again.
        """
        _, program, kind, layer, _, read, version, _, _ = event
        self._rings[program].append(event)
        self._counts[program] += 1
        if kind == "write":
            self._staleness[program][layer][version - 1 - read] += 1

    def events(self, kind: str | None = None) -> list[Event]:
        """All events that were kept (of one kind), in order of their start."""
        kept = (event for ring in self._rings for event in map(Event._make, tuple(ring)) if kind in (None, event.kind))
        return sorted(kept, key=lambda event: (event.start, event.end))

    @property
    def dropped(self) -> int:
        """Events that the rings no longer hold."""
        return sum(self._counts) - sum(map(len, self._rings))

    def staleness(self, layer: int | None = None) -> Counter[int]:
        """How many writes had which staleness, of one layer or of all."""
        total: Counter[int] = Counter()
        for program in self._staleness:
            for index, histogram in enumerate(program):
                if layer in (None, index):
                    total.update(dict(histogram))  # a copy in one go: its thread may be counting
        return total

    def mean_staleness(self, layer: int | None = None) -> float:
        """Mean staleness of the writes, NaN without any."""
        histogram = self.staleness(layer)
        writes = sum(histogram.values())
        return sum(tau * count for tau, count in histogram.items()) / writes if writes else float("nan")

    def max_staleness(self, layer: int | None = None) -> int:
        """Largest staleness of a write, 0 without any."""
        return max(self.staleness(layer), default=0)

    def save(self, path: str | Path) -> Path:
        """Write the events as Chrome trace JSON, which ui.perfetto.dev opens: a row for each program."""
        rows: list[dict[str, object]] = []
        for program in self.programs:
            name = {"name": f"worker {program.worker} {program.group}"}
            rows.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": program.index, "args": name})
        for event in self.events():
            layer = self.layers[event.layer] if event.layer >= 0 else ""
            rows.append(
                {
                    "ph": "X",
                    "name": f"{event.kind} {layer}".rstrip(),
                    "cat": event.kind,
                    "pid": 0,
                    "tid": event.program,
                    "ts": event.start * 1e6,
                    "dur": (event.end - event.start) * 1e6,
                    "args": {"batch": event.batch, "read": event.read, "version": event.version},
                }
            )
        path = Path(path)
        path.write_text(json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}), encoding="utf-8")
        return path
