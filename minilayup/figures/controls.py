"""What a reader can move: a number, a choice, or a sequence of moves.  Described here, shown by `widgets`.

A control is a description and a value; it knows nothing of Jupyter until `widgets` is called, so that a figure can be
tested and drawn without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError, choose, number, positive_int

WRAP = {"display": "flex", "flex_flow": "row wrap", "align_items": "center", "grid_gap": "0 1.5rem"}
SIDE_BY_SIDE = {"display": "flex", "flex_flow": "row wrap", "align_items": "center", "max_width": "100%"}


@dataclass
class Number:
    """A number between ``low`` and ``high``: a slider and, beside it, a box that names it and takes typed values.

    Whole numbers if ``low``, ``step`` and ``value`` are ints.  ``unit`` is shown after the label.
    """

    label: str
    low: float
    high: float
    step: float
    value: float
    unit: str = ""
    start: float = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.value

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are allowed."""
        return isinstance(self.low, int) and isinstance(self.step, int) and isinstance(self.start, int)

    @property
    def samples(self) -> list[float]:
        """Its lowest and highest value and three between."""
        steps = round((self.high - self.low) / self.step)
        places = [0, steps, steps // 4, steps // 2, (3 * steps) // 4]
        return [self.allow("value", min(self.high, self.low + self.step * place)) for place in places]

    def allow(self, name: str, value: Any) -> float:
        """The value, if it may be set; raises `ArgumentError` otherwise."""
        checked = number(name, value, self.low, self.high)
        if not self.whole:
            return round(checked, 9)
        if checked != round(checked):
            raise ArgumentError(f"{name}={value!r} is not allowed: it must be a whole number.")
        return int(checked)

    def widgets(self, changed: Callable[[float], None]) -> list[Any]:
        """The widgets; ``changed`` is called with each new value.  The last of them takes values from outside."""
        import ipywidgets as w

        label = f"{self.label} ({self.unit})" if self.unit else self.label
        options = {"min": self.low, "max": self.high, "step": self.step, "value": self.value}
        wide = {"description_width": "initial"}
        if self.whole:
            box = w.BoundedIntText(**options, description=label, style=wide, layout={"width": "auto"})
            slider = w.IntSlider(**options, readout=False, layout={"width": "12rem"})
        else:
            box = w.BoundedFloatText(**options, description=label, style=wide, layout={"width": "auto"})
            slider = w.FloatSlider(**options, readout=False, layout={"width": "12rem"})
        slider.add_class("minilayup-slider")  # named after its box by `NAMES` in figure.py
        w.jslink((slider, "value"), (box, "value"))
        box.observe(lambda change: changed(change.new), "value")
        return [w.Box([box, slider], layout=SIDE_BY_SIDE), box]


@dataclass
class Choice:
    """One of a few named options: a list that the arrow keys move through."""

    label: str
    options: Sequence[str]
    value: str
    start: str = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.value

    @property
    def samples(self) -> list[str]:
        """All options."""
        return list(self.options)

    def allow(self, name: str, value: Any) -> str:
        """The value, if it may be set; raises `ArgumentError` otherwise."""
        return choose(name, value, self.options)

    def widgets(self, changed: Callable[[str], None]) -> list[Any]:
        """The widgets, as for `Number`."""
        import ipywidgets as w

        box = w.Dropdown(
            options=list(self.options), value=self.value, description=self.label,
            style={"description_width": "initial"}, layout={"width": "auto"},
        )  # fmt: skip
        box.observe(lambda change: changed(change.new), "value")
        return [box, box]


@dataclass
class Moves:
    """A sequence of moves, one button for each kind, and one that takes the last move back.

    buttons: {letter: what its button says}.  value: the letters, in order.  most: no more moves than this.
    """

    label: str
    buttons: Mapping[str, str]
    value: str = ""
    most: int = 40
    start: str = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.value
        positive_int("most", self.most)

    @property
    def samples(self) -> list[str]:
        """No move, as many as there may be, and three sequences between."""
        a, *others = self.buttons
        b = others[-1] if others else a
        return ["", (a + b) * (self.most // 2), a, a + b, a * 2 + b * 2]

    def allow(self, name: str, value: Any) -> str:
        """The value, if it may be set; raises `ArgumentError` otherwise."""
        if not isinstance(value, str) or len(value) > self.most or set(value) - set(self.buttons):
            raise ArgumentError(
                f"{name}={value!r} is not allowed: give at most {self.most} of the letters {', '.join(self.buttons)}."
            )
        return value

    def widgets(self, changed: Callable[[str], None]) -> list[Any]:
        """The widgets, as for `Number`; the last, hidden, holds the sequence."""
        import ipywidgets as w

        moves = w.Text(value=self.value, description=self.label, disabled=True, layout={"display": "none"})

        def press(letter: str) -> None:
            moves.value = (moves.value + letter)[: self.most]

        row = []
        for letter, words in self.buttons.items():
            button = w.Button(description=words, layout={"width": "auto"})
            button.on_click(lambda _, letter=letter: press(letter))
            row.append(button)
        back = w.Button(description="Take the last move back", layout={"width": "auto"})

        def take_back(_: Any) -> None:
            moves.value = moves.value[:-1]

        back.on_click(take_back)
        moves.observe(lambda change: changed(change.new), "value")
        return [w.Box([*row, back, moves], layout=WRAP), moves]


Control = Number | Choice | Moves
