"""A figure in Jupyter: the question first, then the controls, the picture, and the words that read it."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from .controls import WRAP

if TYPE_CHECKING:
    from .figure import Figure

# What ipywidgets and JupyterLab leave undone, done whenever something new is on the page: a slider gets the name of the
# box beside it; a list keeps its arrow keys, with which JupyterLab would go to another cell; and the words are a live
# region: one that stays while its text is replaced, or it would not be read out.
NAMES = """
if (!window.minilayupNames) {
  const name = () => {
    document.querySelectorAll('.minilayup-slider').forEach(slider => {
      const label = slider.parentElement?.querySelector('label'), handle = slider.querySelector('[role=slider]');
      if (label && handle) handle.setAttribute('aria-label', label.textContent + ', slider');
    });
    document.querySelectorAll('.minilayup-figure select').forEach(list => {
      list.setAttribute('data-lm-suppress-shortcuts', 'true');
    });
    document.querySelectorAll('.minilayup-words .widget-html-content').forEach(words => {
      words.setAttribute('role', 'status');
      words.setAttribute('aria-live', 'polite');
    });
  };
  name();
  window.minilayupNames = new MutationObserver(name);
  window.minilayupNames.observe(document.body, {childList: true, subtree: true});
}
"""

# In a narrow window (400 % zoom) a label and its control go on two lines, and nothing is cut off.
NARROW = """<style>
.minilayup-figure .widget-inline-hbox { flex-wrap: wrap; flex-shrink: 1; height: auto; max-width: 100%; }
.minilayup-figure .widget-label { white-space: normal; height: auto; }
.minilayup-figure .widget-inline-hbox > * { flex-basis: auto; max-width: 100%; min-width: 0; }
.minilayup-figure .widget-html-content { overflow-wrap: anywhere; }
</style>"""


def show(widget: Any) -> None:
    """Display a widget of ours."""
    from IPython.display import Javascript, display

    display(widget, Javascript(NAMES))  # type: ignore[no-untyped-call]


def words() -> Any:
    """An empty line of words that is read out when its text changes."""
    import ipywidgets as w

    box = w.HTML()
    box.add_class("minilayup-words")
    return box


class Panel:
    """The widgets of one figure.

    Attributes:
        whole: all of them: a title, the question, and the body, which appears when a prediction is committed.
    """

    def __init__(self, figure: Figure) -> None:
        import ipywidgets as w

        self.figure = figure
        self._moving = False  # while it is we who move the controls
        self._picture, self._words = w.HTML(), words()
        self._boxes: dict[str, Any] = {}
        rows = []
        for name, control in figure.controls.items():
            row, self._boxes[name] = control.widgets(partial(self._moved, name))
            rows.append(row)
        self._line = w.Text(
            description="State", tooltip="Copy it, or paste one here", continuous_update=False,
            layout={"flex": "1 1 12rem"},
        )  # fmt: skip
        self._line.observe(self._pasted, "value")
        reset = w.Button(description="Reset", tooltip="All controls as at the beginning")
        reset.on_click(self._reset)
        end = w.Box([reset, self._line], layout=WRAP)
        self._body = w.VBox([w.Box(rows, layout=WRAP), self._picture, self._words, end])
        title = w.HTML(f"<b>{html.escape(figure.title)}</b>{NARROW}")
        self.whole = w.VBox([title, self._question(), self._body])
        self.whole.add_class("minilayup-figure")
        if figure.predicted is None:
            self._body.layout.display = "none"
        else:
            self._show()

    def _question(self) -> Any:
        import ipywidgets as w

        asked = w.HTML(f"<b>Predict first.</b> {html.escape(self.figure.prediction.question)}")
        row, box = self.figure.prediction.answer.widgets(lambda value: None)
        commit = w.Button(description="Commit", button_style="primary", tooltip="Commit to this prediction")

        def committed(_: Any) -> None:
            self.figure.predict(box.value)
            self._body.layout.display = ""
            self._follow()

        commit.on_click(committed)
        return w.VBox([asked, w.Box([row, commit], layout=WRAP)])

    def _moved(self, name: str, value: Any) -> None:
        """The reader has moved a control."""
        if not self._moving:
            self.figure.set(**{name: value})
            self._show()

    def _pasted(self, change: Any) -> None:
        """The reader has pasted a line of `Figure.state`."""
        if self._moving:
            return
        try:
            self.figure.restore(change.new)
        except ArgumentError as error:
            self._words.value = html.escape(str(error))
        else:
            self._follow()

    def _reset(self, _: Any) -> None:
        for control in self.figure.controls.values():
            control.value = control.start
        self._follow()

    def _follow(self) -> None:
        """Show what the figure is set to, in the controls as well."""
        self._moving = True
        for name, box in self._boxes.items():
            box.value = self.figure.controls[name].value
        self._moving = False
        self._show()

    def _show(self) -> None:
        self._picture.value = self.figure.svg()
        self._words.value = html.escape(self.figure.text())
        self._moving = True
        self._line.value = self.figure.state()
        self._moving = False
