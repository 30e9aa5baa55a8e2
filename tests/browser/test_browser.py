"""Every notebook in a real JupyterLab: run, driven with the keyboard, named for screen readers, dark, and at 400 %.

Chromium's accessibility tree stands for what a screen reader is told; no screen reader has confirmed it.
"""

from __future__ import annotations

import os

import pytest
from lab import NOTEBOOKS, Lab
from page import Notebook
from scripts import STATE, WORDS

from minilayup.picture import contrast

ALL = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
SETTLES = 0.3  # seconds from the key's release to the last change
TRIES = 5  # a figure that is slow is slow every time, a busy machine not

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
each = pytest.mark.parametrize("notebook", ALL, indirect=True, ids=lambda name: name.removesuffix(".ipynb"))


@each
def test_run_all_shows_no_traceback(notebook: Notebook) -> None:
    assert notebook.tracebacks() == []
    assert notebook.not_run() == []


@each
def test_every_control_moves_with_the_keyboard(notebook: Notebook) -> None:
    """The first control of each figure changes what the figure says, each other one at least its state."""
    for figure in notebook.figures:
        for k, control in enumerate(notebook.controls(figure)):
            parts = control[:1] if notebook.role(control[0]) == "button" else control
            for part in parts:
                notebook.press(figure, part, WORDS if k == 0 else STATE)


@each
def test_a_held_key_leaves_no_queue_behind(notebook: Notebook) -> None:
    slow = {}
    for figure in notebook.figures:
        first = notebook.controls(figure)[0]
        part = first[0] if notebook.role(first[0]) == "button" else first[-1]
        times = [notebook.hold(figure, part)]
        while min(times) > SETTLES and len(times) < TRIES:
            times.append(notebook.hold(figure, part))
        if min(times) > SETTLES:
            slow[notebook.describe(part)] = f"{min(times):.2f} s from the key's release to the last change"
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if slow and load > 2 * cores:
        pytest.skip(f"{slow}, but {load:.0f} tasks want the {cores} cores of this machine")
    assert not slow


@each
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_it_can_be_read_in_both_themes(notebook: Notebook, theme: str) -> None:
    notebook.theme(theme)
    try:
        assert notebook.unnamed_pictures() == []
        assert notebook.unnamed_controls() == []
        assert all(
            figure.locator(f"{WORDS}[role=status][aria-live=polite]").count() == 1 for figure in notebook.figures
        )
        faint = {pair for pair in notebook.inks() if contrast(*pair) < 4.5}
        assert not faint, "words that do not stand out from what is behind them"
        for figure in notebook.figures:
            notebook.reset(figure)
            notebook.press(figure, notebook.controls(figure)[0][0], WORDS)
        assert notebook.unnamed_controls() == []
        assert all(
            figure.locator(f"{WORDS}[role=status][aria-live=polite]").count() == 1 for figure in notebook.figures
        )
        notebook.shoot(theme.lower())
    finally:
        notebook.theme("Light")


@each
def test_nothing_is_cut_off_at_400_per_cent(notebook: Notebook) -> None:
    """A window of 1280 × 1024 pixels at 400 % zoom is 320 × 256 CSS pixels; the side panel is closed."""
    notebook.resize(320, 256)
    try:
        assert notebook.cut_off() == []
        notebook.shoot("zoom", whole=False)
    finally:
        notebook.resize(1280, 900)


@each
def test_nobody_complains(notebook: Notebook) -> None:
    """After all that: no error in the browser's console or in the kernel, and nothing was asked of the network."""
    notebook.idle()
    assert notebook.console == []
    assert notebook.complaints() == []
    assert notebook.outside == []


FAULTY = """
import time
from IPython.display import HTML, display
from minilayup import picture
from minilayup.figures import Figure, Prediction
from minilayup.figures.controls import Number

class Faulty(Figure):
    title, finding = "Faulty", "It is slow, and it fails."
    def __init__(self):
        asked = Prediction("How many apples?", Number("Apples", 0, 9, 1, 5), {}, lambda data: data["n"])
        super().__init__({"n": Number("n", 0, 9, 1, 0)}, asked)
    def model(self, *, n):
        if n == 2:
            raise RuntimeError("two is too many")
        return {"n": n}
    def draw(self, canvas):
        self.line = picture.line(canvas.subplots(), 0)
    def update(self, data):
        time.sleep(0.5)
        self.line.set_data([0, data["n"]], [0, 1])
    def read(self, data):
        return f"n is {data['n']}."
    def table(self):
        raise NotImplementedError

image = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
shapes = "<svg><rect width='9' height='9'></rect></svg><svg role='img' aria-label='named'></svg>"
display(Faulty().widget(), HTML(f"<img src='{image}'>{shapes}"))
"""
SPOIL = """figure => {
  figure.querySelector('label').style.color = 'silver';
  figure.insertAdjacentHTML('beforeend', '<div style="width: 600px">wide</div>');
  console.error('a widget complains');
}"""


def test_faults_are_found(chromium, lab: Lab) -> None:
    """A notebook with each fault that the tests above look for."""
    nbformat = pytest.importorskip("nbformat")
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in (FAULTY, "1 / 0", "'not run'")],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(made, lab.notebooks / "faulty.ipynb")
    faulty = Notebook(chromium, lab, "faulty.ipynb")
    try:
        faulty.run()
        faulty.commit()
        assert any("ZeroDivisionError" in text for text in faulty.tracebacks())
        assert len(faulty.not_run()) == 1 and "'not run'" in faulty.not_run()[0]
        assert len(faulty.unnamed_pictures()) == 2, faulty.unnamed_pictures()
        assert faulty.unnamed_controls() == ["a slider without a name"] * 2
        [figure] = faulty.figures
        box, slider = faulty.controls(figure)[0]
        assert not any("two is too many" in text for text in faulty.complaints())
        faulty.press(figure, box, WORDS)
        slider.press("ArrowRight")
        faulty.page.wait_for_function("() => minilayupTest.complaints.join().includes('two is too many')")
        assert any("two is too many" in text for text in faulty.complaints())
        slider.press("ArrowRight")
        faulty.idle()
        assert faulty.hold(figure, slider) > SETTLES
        assert all(contrast(*pair) >= 4.5 for pair in faulty.inks())
        figure.evaluate(SPOIL)
        assert any(contrast(*pair) < 4.5 for pair in faulty.inks())
        faulty.resize(320, 256)
        assert len(faulty.cut_off()) == 1
        assert any("a widget complains" in text for text in faulty.console)
    finally:
        faulty.close()
