"""The contract of every interactive figure: a model, a picture, controls, and a prediction that comes first.

A figure is a subclass of `Figure` in a file of its own.  It says four things:

    model(**settings)   the controls' values -> the numbers that are drawn; no Jupyter, no matplotlib
    draw(canvas)        makes the artists of an empty picture, once
    update(data)        moves them
    read(data)          the sentence that reads the picture: its finding, with numbers

and declares its ``controls`` and its ``prediction``.  Everything else is here.
"""

from __future__ import annotations

import html
import json
import math
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import matplotlib
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure

from .. import picture
from ..errors import ArgumentError, choose
from ..table import Table
from .controls import Choice, Control, Number

Data = dict[str, Any]

STRIP = 0.75  # inches below the picture, for the prediction and the outcome


def _number(text: str) -> float | str:
    """The number that a text is, or the text itself, which no control of a number will allow."""
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Prediction:
    """What the reader commits to before the picture is shown.

    Args:
        question: one sentence that names the settings it is about, and the unit of the answer.
        answer: the control that takes it: a `Number` or a `Choice`.
        settings: the controls' values it is about; the others are at their start.
        outcome: reads the true answer out of the model's data for these settings.
    """

    question: str
    answer: Number | Choice
    settings: Mapping[str, Any]
    outcome: Callable[[Data], float | str]


class Figure(ABC):
    """An interactive figure: see the module's docstring.

    Attributes:
        title: a few words.
        finding: the aha that the picture shows, in one sentence; its caption and file's alt text begin with it.
        controls: {name: control}.
        prediction: what is asked first.
        trains: whether the model trains something on the virtual clock.
    """

    title: ClassVar[str]
    finding: ClassVar[str]
    trains: ClassVar[bool] = False
    size: ClassVar[tuple[float, float]] = (7.2, 3.6)  # inches, without the strip of the prediction

    def __init__(self, controls: dict[str, Control], prediction: Prediction) -> None:
        self.controls, self.prediction = controls, prediction
        for name, value in prediction.settings.items():
            controls[choose("a setting of the prediction", name, controls)].allow(name, value)
        self.predicted: float | str | None = None
        self._cache: dict[str, Data] = {}
        self._canvas: Canvas | None = None

    # -- what a figure says ------------------------------------------------------------------------------------------

    @abstractmethod
    def model(self, *args: Any, **settings: Any) -> Data:
        """The numbers to be drawn, for these settings: arrays, lists, numbers and texts, all finite."""

    @abstractmethod
    def draw(self, canvas: SubFigure) -> None:
        """Make the artists, once, without data.  Style is set: see `picture.STYLE`."""

    @abstractmethod
    def update(self, data: Data) -> None:
        """Move the artists to these data."""

    @abstractmethod
    def read(self, data: Data) -> str:
        """One sentence that reads the picture, with its numbers and units."""

    @abstractmethod
    def table(self) -> Table:
        """The numbers behind the picture."""

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """{control: value}."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **settings: Any) -> None:
        """Move controls; raises `ArgumentError` for an unknown one or a value that is not allowed."""
        allowed = {}
        for name, value in settings.items():
            allowed[name] = self.controls[choose("control", name, self.controls)].allow(name, value)
        for name, value in allowed.items():
            self.controls[name].value = value

    def predict(self, answer: float | str) -> None:
        """Commit to a prediction."""
        self.predicted = self.prediction.answer.allow("prediction", answer)

    def state(self) -> str:
        """The figure's settings and the prediction as one line that can be pasted elsewhere."""
        pairs = {**self.settings, **({} if self.predicted is None else {"predicted": self.predicted})}
        return " ".join([type(self).__name__, *(f"{k}={shlex.quote(str(v))}" for k, v in pairs.items())])

    def restore(self, line: str) -> None:
        """Set everything as a line of `state` says; raises `ArgumentError` for a line of something else."""
        try:
            name, *pairs = shlex.split(line) or [""]
        except ValueError as error:  # a quotation mark that is not closed
            raise ArgumentError(f"the line cannot be read: {error}") from None
        choose("the figure's name in the line", name, [type(self).__name__])
        given: dict[str, Any] = {}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals:
                raise ArgumentError(f"{pair!r} in the line is not of the form name=value")
            control = self.prediction.answer if key == "predicted" else self.controls.get(key)
            given[key] = _number(value) if isinstance(control, Number) else value
        predicted = given.pop("predicted", None)
        self.set(**given)
        if predicted is not None:
            self.predict(predicted)

    # -- what it shows -----------------------------------------------------------------------------------------------

    def _data(self, settings: Mapping[str, Any]) -> Data:
        key = json.dumps(settings, sort_keys=True)
        if key not in self._cache:
            if len(self._cache) > 200:
                self._cache.clear()
            self._cache[key] = self.model(**settings)
        return self._cache[key]

    def prepare(self, name: str) -> None:
        """Compute the data for every value of a control now, so that it moves without delay.

        For controls with few values whose model takes more than 50 ms.
        """
        control = self.controls[choose("control", name, self.controls)]
        values: list[Any] = list(control.samples)
        if isinstance(control, Number):
            values = [
                control.low + k * control.step for k in range(round((control.high - control.low) / control.step) + 1)
            ]
        for value in values:
            self._data({**self.settings, name: control.allow(name, value)})

    def forget(self) -> None:
        """Compute everything anew from here on."""
        self._cache.clear()

    def data(self) -> Data:
        """The numbers that are drawn now."""
        return self._data(self.settings)

    def outcome(self) -> float | str:
        """The true answer to the prediction's question, computed by the model."""
        at = {name: control.start for name, control in self.controls.items()}
        return self.prediction.outcome(self._data({**at, **self.prediction.settings}))

    def text(self) -> str:
        """One sentence that reads the picture, and one that compares the prediction with the outcome."""
        return " ".join([self.read(self.data()), *([] if self.predicted is None else [self.verdict()])])

    def verdict(self) -> str:
        """The prediction beside the outcome, in words."""
        return f"Your prediction for the question was {self._show(self.predicted)}; it is {self._show(self.outcome())}."

    def svg(self) -> str:
        """The picture as inline SVG, named by `text`."""
        with picture.DRAWING, matplotlib.rc_context(picture.STYLE):
            if self._canvas is None:
                self._make()
            assert self._canvas is not None
            self.update(self.data())
            self._strip()
        upper = 1.0 if self.predicted is not None else self.size[1] / (self.size[1] + STRIP)
        return picture.render(self._canvas, f"{self.title}. {self.text()}", type(self).__name__, upper)

    def static(self) -> str:
        """The picture for places without a kernel: an HTML ``<figure>``."""
        return f"<figure>{self.svg()}<figcaption>{html.escape(f'{self.finding} {self.text()}')}</figcaption></figure>"

    def save(self, path: str | Path) -> Path:
        """Write the picture as an SVG file that is legible on any background."""
        path = Path(path)
        path.write_text(picture.alone(self.svg()), encoding="utf-8")
        return path

    def _make(self) -> None:
        width, height = self.size
        self._canvas = picture.canvas(width, height + STRIP)
        parts: Any = self._canvas.subfigures(2, 1, height_ratios=[height, STRIP])
        upper, lower = parts
        self.draw(upper)
        axes = self._strip_axes = lower.add_axes((0.2, 0.62, 0.75, 0.25))
        axes.spines["left"].set_visible(False)
        axes.set_yticks([])
        lower.text(0.01, 0.6, "your prediction ▼\noutcome ●", fontsize=9, va="center")
        answer = self.prediction.answer
        if isinstance(answer, Number):
            axes.set_xlim(answer.low, answer.high)
        else:
            axes.set_xlim(-0.5, len(answer.options) - 0.5)
            axes.set_xticks(range(len(answer.options)), answer.options)
        axes.set_ylim(0, 1)
        axes.set_xlabel(f"{answer.label}{f', {answer.unit}' if isinstance(answer, Number) and answer.unit else ''}")
        self._you = axes.plot([], [], "v", color=picture.COLOURS[1], markersize=9, clip_on=False)[0]
        self._true = axes.plot([], [], "o", color=picture.COLOURS[0], markersize=7, clip_on=False)[0]
        self._strip_figure = lower

    def _strip(self) -> None:
        """The prediction and the outcome on one line, below the picture, once there is a prediction."""
        self._strip_figure.set_visible(self.predicted is not None)
        if self.predicted is None:
            return
        for artist, value in ((self._you, self.predicted), (self._true, self.outcome())):
            answer = self.prediction.answer
            place = float(value) if isinstance(answer, Number) else list(answer.options).index(str(value))
            artist.set_data([place], [0.5])
            self._strip_axes.set_xlim(
                min(place, self._strip_axes.get_xlim()[0]), max(place, self._strip_axes.get_xlim()[1])
            )

    def _show(self, value: float | str | None) -> str:
        answer = self.prediction.answer
        if not isinstance(answer, Number):
            return f"“{value}”"
        digits = 0 if answer.whole else max(0, -math.floor(math.log10(answer.step)))
        return f"{float(value or 0):.{digits}f}{f' {answer.unit}' if answer.unit else ''}"

    # -- in Jupyter --------------------------------------------------------------------------------------------------

    def widget(self) -> Any:
        """The figure with its controls, as one ipywidget.  The picture appears when a prediction is committed."""
        from .jupyter import Panel

        return Panel(self).whole

    def _ipython_display_(self) -> None:
        from .jupyter import show

        show(self.widget())
