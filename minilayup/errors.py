"""What is said when something a person gave cannot be used: what was given, what is allowed, and the nearest name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

__all__ = ["ArgumentError", "DataError", "choose", "number", "positive_int"]


class ArgumentError(ValueError):
    """An argument was refused. The message says what was given and what is allowed."""


class DataError(RuntimeError):
    """Data is missing, damaged or cannot be reached. The message says what to do."""


def choose(what: str, given: object, allowed: Iterable[str]) -> str:
    """Return `given` if it is one of the names in `allowed`; raise `ArgumentError` with the nearest name otherwise.

    `what` is the argument's name: ``choose("model", "cnm", ["mlp", "cnn"])`` says "model='cnm' is not known. Did you
    mean 'cnn'? Allowed: 'mlp', 'cnn'."
    """
    names = list(allowed)
    if isinstance(given, str):
        if given in names:
            return given
        # Compared in lower case, so that "ResNet18" finds "resnet18".
        lower = {name.lower(): name for name in names}
        near = difflib.get_close_matches(given.lower(), lower, n=1)
    else:
        near = []
    hint = f"Did you mean {lower[near[0]]!r}? " if near else ""
    raise ArgumentError(f"{what}={given!r} is not known. {hint}Allowed: {', '.join(map(repr, names))}.")


def positive_int(what: str, given: object, at_least: int = 1) -> int:
    """Return `given` if it is a whole number >= `at_least`; raise `ArgumentError` otherwise.

    Anything with ``__index__`` (NumPy's integers, a tensor of one integer) counts as a whole number; bools do not.
    """
    # A bool is an int to Python, but workers=True is a slip, not a wish for one worker. Its dtype gives away np.bool_.
    is_bool = isinstance(given, bool) or "bool" in str(getattr(given, "dtype", ""))
    try:
        value = None if is_bool else given.__index__()  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        value = None
    if value is None or value < at_least:
        raise ArgumentError(f"{what}={given!r} is not allowed: it must be a whole number, at least {at_least}.")
    return int(value)


def number(
    what: str,
    given: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return `given` as a float if it is finite and low <= given <= high; raise `ArgumentError` otherwise.

    `open_low` and `open_high` leave the border itself out. Bools, strings, NaN and infinity are refused.
    """
    is_bool = isinstance(given, bool) or "bool" in str(getattr(given, "dtype", ""))
    try:
        value = math.nan if is_bool or isinstance(given, (str, bytes)) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        value = math.nan
    above = value > low if open_low else value >= low
    below = value < high if open_high else value <= high
    if math.isfinite(value) and above and below:
        return value
    limits = [f"{'above' if open_low else 'at least'} {low:g}"] if low > -math.inf else []
    limits += [f"{'below' if open_high else 'at most'} {high:g}"] if high < math.inf else []
    raise ArgumentError(
        f"{what}={given!r} is not allowed: it must be a finite number{', ' * bool(limits)}{' and '.join(limits)}."
    )
