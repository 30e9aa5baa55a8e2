"""What a method is: some programs over a `Run`."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod

from ..run import Run
from ..threads import Program


class Method(ABC):
    """A training method.  Its `programs` are the paper's pseudo-code; it never names a thread, a lock or a device.

    Attributes:
        workers: data-parallel participants.
        exchange: name of the gossip rule, for methods that put.
    """

    workers: int = 1
    exchange: str | None = None

    @property
    def threads(self) -> int:
        """How many programs there are: what a fair comparison keeps equal."""
        return self.workers

    def slowable(self) -> set[int | str]:
        """What ``slow=`` may name: the workers' numbers and the groups of programs."""
        return {*range(self.threads), "worker"}

    @abstractmethod
    def programs(self, run: Run) -> list[Program]:
        """The programs of one run."""

    @property
    def name(self) -> str:
        """The method's name in tables."""
        return type(self).__name__

    def __str__(self) -> str:
        """The constructor call, without what is at its default."""
        shown = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != field.default:
                shown.append(f"{field.name}={value!r}")
        return f"{self.name}({', '.join(shown)})"
