"""What a run changes in the whole process, and puts back: torch's thread count and its default random stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def as_before() -> Iterator[None]:
    """Afterwards torch uses as many threads for one operation as before, and its default generator stands where it
    stood."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's default generator starts at ``seed`` inside; afterwards all is `as_before`."""
    with as_before():
        torch.manual_seed(seed)
        yield
