"""Lesson 00: every kind of control that the course uses, on one line of numbers.  If this moves, all figures will."""

from __future__ import annotations

from matplotlib.figure import SubFigure

from .. import picture
from ..table import Table
from .controls import Choice, Moves, Number
from .figure import Data, Figure, Prediction

SIZES = {"small steps": 0.5, "steps of one": 1.0, "large steps": 2.0}


class ControlSampler(Figure):
    """A walk on a line of numbers: where it starts, how long a step is, and the steps."""

    title = "Control sampler"
    finding = "Every control can be moved with the keyboard, and its result can be read."
    size = (7.2, 1.6)

    def __init__(self) -> None:
        super().__init__(
            {
                "start": Number("Start", 0, 10, 1, 3),
                "size": Choice("Step", list(SIZES), "steps of one"),
                "steps": Moves("Steps", {"l": "Step left", "r": "Step right"}, most=20),
            },
            Prediction(
                "A walk starts at 3 and makes six small steps (of one half) to the right. Where does it end?",
                Number("It ends at", 0.0, 10.0, 0.5, 5.0),
                {"start": 3, "size": "small steps", "steps": "rrrrrr"},
                lambda data: data["places"][-1],
            ),
        )

    def model(self, *, start: float, size: str, steps: str) -> Data:
        """All places of the walk, in order."""
        places = [float(start)]
        for step in steps:
            places.append(places[-1] + (SIZES[size] if step == "r" else -SIZES[size]))
        return {"places": places, "size": SIZES[size]}

    def draw(self, canvas: SubFigure) -> None:
        """A line of numbers."""
        axes = canvas.subplots(gridspec_kw={"left": 0.05, "right": 0.97, "bottom": 0.35, "top": 0.85})
        axes.spines["left"].set_visible(False)
        axes.set(xlim=(-2, 22), ylim=(-0.5, 1), yticks=[], xlabel="place", title="The walk")
        self._axes = axes
        self._path = picture.line(axes, 0)
        self._end = picture.line(axes, 1, markersize=11)
        self._label = axes.text(0, 0.45, "", ha="center")

    def update(self, data: Data) -> None:
        """Show the walk and its end."""
        places = data["places"]
        self._path.set_data(places, [0] * len(places))
        self._end.set_data(places[-1:], [0])
        self._label.set(position=(places[-1], 0.45), text=f"at {places[-1]:g}")
        self._axes.set_xlim(min(-2, *places, 0), max(22, *places, 0))

    def read(self, data: Data) -> str:
        """Where the walk starts and ends."""
        places, size = data["places"], data["size"]
        return f"The walk starts at {places[0]:g}, makes {len(places) - 1} steps of {size:g} and is at {places[-1]:g}."

    def table(self) -> Table:
        """Each place."""
        rows = [[str(k), f"{place:g}"] for k, place in enumerate(self.data()["places"])]
        return Table("The walk", ["steps", "place"], rows)
