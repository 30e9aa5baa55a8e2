"""What programs wait at: a queue and a barrier, written once over a clock's ``block`` and ``wake``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .threads import Clock, Program

Item = TypeVar("Item")


class Queue(Generic[Item]):
    """First in, first out.  Iterating ends when every producer has closed the queue and it is drained."""

    def __init__(self, clock: Clock, producers: int) -> None:
        self._clock, self._producers = clock, producers
        self._items: deque[Item] = deque()

    def put(self, item: Item) -> None:
        """Append an item; never waits (what bounds a run is the pool of views)."""
        with self._clock.lock:
            self._items.append(item)
            self._clock.wake(self)

    def get(self) -> Item:
        """Take the oldest item, waiting for one.

        Raises: EOFError when the queue is closed and empty.
        """
        with self._clock.lock:
            while not self._items:
                if self._producers == 0:
                    raise EOFError("the queue is closed and empty")
                self._clock.block(self)
            return self._items.popleft()

    def close(self) -> None:
        """One producer has put its last item."""
        with self._clock.lock:
            self._producers -= 1
            self._clock.wake(self)

    def __iter__(self) -> Iterator[Item]:
        while True:
            try:
                yield self.get()
            except EOFError:
                return


class Barrier:
    """Everyone waits for the last one.  A program that ends after having used the barrier no longer counts."""

    def __init__(self, clock: Clock, parties: int) -> None:
        self._clock, self._parties = clock, parties
        self._members: set[Program] = set()
        self._arrived = self._generation = 0
        self._action: Callable[[], None] = lambda: None

    def wait(self, action: Callable[[], None] = lambda: None) -> None:
        """Wait for all parties; the last to arrive runs ``action`` before anyone goes on."""
        with self._clock.lock:
            self._members.add(self._clock.program)
            self._arrived += 1
            self._action = action
            generation = self._generation
            self._open_if_complete()
            while generation == self._generation:
                self._clock.block(self)

    def leave(self, program: Program) -> None:
        """``program`` has ended (called by the clock)."""
        if program in self._members:
            self._members.discard(program)
            self._parties -= 1
            self._open_if_complete()

    def _open_if_complete(self) -> None:
        if self._arrived and self._arrived >= self._parties and not self._clock.stopped:
            self._action()
            self._arrived = 0
            self._generation += 1
            self._clock.wake(self)
