"""A progress bar that leaves no thread behind."""

from __future__ import annotations

from typing import Any


def bar(total: float | None, unit: str, title: str = "", show: bool = True) -> Any:
    """A tqdm bar on a terminal or in a notebook, hidden elsewhere and with ``show=False``.

    tqdm's own watchdog thread is switched off: nothing but its end would end it.
    """
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0

    return Bar(total=total, unit=f" {unit}", desc=title or None, leave=False, disable=None if show else True)
