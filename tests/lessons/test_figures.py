"""One contract for every figure: its controls, state, data, table, picture and words; and the finding of its lesson."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from lessons import NOTEBOOKS, load

from minilayup import ArgumentError, picture
from minilayup.course import notebook
from minilayup.course.lesson import LESSONS
from minilayup.figures import FIGURES
from minilayup.figures.controls import Number

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", params=FIGURES)
def figure(request):
    made = FIGURES[request.param]()
    made.number = request.param
    return made


@pytest.fixture(autouse=True)
def at_its_start(request):
    yield
    if "figure" in request.fixturenames:
        made = request.getfixturevalue("figure")
        made.predicted = None
        made.set(**{name: control.start for name, control in made.controls.items()})


def numbers(value: Any) -> list[float]:
    """All numbers in nested lists, dicts and arrays."""
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    if isinstance(value, (str, bytes)) or value is None:
        return []
    if isinstance(value, (list, tuple, set)):
        return [n for v in value for n in numbers(v)]
    return [float(n) for n in np.asarray(value, dtype=float).ravel()]


def check_picture(figure: Any) -> ElementTree.Element:
    """The picture is valid, named by its text, and every mark of it can be seen in both themes."""
    root = ElementTree.fromstring(figure.svg())
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"{figure.title}. {figure.text()}"
    assert "nan" not in figure.svg().replace("nance", "")
    for element in root.iter():
        if element.tag in (f"{SVG}path", f"{SVG}use", f"{SVG}rect", f"{SVG}text"):
            check_contrast(element)
    return root


def check_contrast(element: ElementTree.Element) -> None:
    style = dict(re.findall(r"([\w-]+):\s*([^;]+)", element.get("style", "")))
    style |= {k: element.get(k, "") for k in ("fill", "stroke", "opacity", "fill-opacity") if element.get(k)}
    for opacity in ("opacity", "fill-opacity", "stroke-opacity"):
        assert float(style.get(opacity, 1)) in (0, 1), f"{style}: nothing is half transparent"
    if float(style.get("opacity", 1)) == 0:
        return
    for what in ("fill", "stroke"):
        colour = style.get(what, "none").strip()
        if float(style.get(f"{what}-opacity", 1)) == 0 or not colour.startswith("#"):
            continue
        for theme, background in picture.BACKGROUNDS.items():
            assert picture.contrast(colour, background) >= 3, f"{colour} on the {theme} theme"


def test_every_lesson_has_one(figure):
    assert figure.title and figure.finding.endswith(".") and figure.controls


def test_each_control_at_five_places_gives_finite_data_a_picture_and_other_words(figure):
    for name, control in figure.controls.items():
        said, changed = figure.text(), 0
        for value in control.samples:
            figure.set(**{name: value})
            data = figure.data()
            assert np.isfinite(numbers(data)).all(), (name, value)
            check_picture(figure)
            assert figure.text().strip()
            changed += figure.text() != said
            rows = figure.table()
            assert rows.rows and all(len(row) == len(rows.columns) for row in rows.rows)
            assert str(rows) and "<table" in rows._repr_html_()
        assert changed, f"{name} changes nothing that is said"
        figure.set(**{name: control.start})


def test_a_value_outside_a_control_is_refused(figure):
    name, control = next(iter(figure.controls.items()))
    with pytest.raises(ArgumentError):
        figure.set(**{name: control.high + 1 if isinstance(control, Number) else "no such thing"})
    with pytest.raises(ArgumentError, match="not known"):
        figure.set(nothing=1)
    assert figure.settings == {name: control.start for name, control in figure.controls.items()}


def test_its_state_is_one_line_that_brings_it_back(figure):
    for name, control in figure.controls.items():
        figure.set(**{name: control.samples[-1]})
    figure.predict(figure.prediction.answer.samples[1])
    line, picture, said = figure.state(), figure.svg(), figure.text()
    assert "\n" not in line
    other = FIGURES[figure.number]()
    other.restore(line)
    assert (other.state(), other.svg(), other.text()) == (line, picture, said)


@pytest.mark.parametrize(
    "line", ["", "Other factor=1", "NAME factor", "NAME nothing=1", "NAME predicted=[]", "NAME 'x"]
)
def test_a_line_of_something_else_is_refused(figure, line):
    before = figure.state()
    with pytest.raises(ArgumentError):
        figure.restore(line.replace("NAME", type(figure).__name__))
    assert figure.state() == before


def test_the_prediction_is_drawn_beside_the_outcome(figure):
    without = figure.svg()
    outcome = figure.outcome()
    assert figure.prediction.answer.allow("the outcome", outcome) == outcome, "the outcome can be predicted"
    figure.predict(figure.prediction.answer.samples[0])
    assert "Your prediction for the question was" in figure.text()
    assert figure.svg() != without and "your prediction" in figure.svg()


def test_it_can_be_shown_without_a_kernel(figure, tmp_path):
    page = figure.static()
    assert page.startswith("<figure>") and "<figcaption>" in page and 'role="img"' in page
    path = figure.save(tmp_path / "picture.svg")
    text = path.read_text("utf-8")
    assert "currentColor" not in text and "#ffffff" in text
    ElementTree.fromstring(text)


def test_its_widget_shows_the_picture_once_a_prediction_is_committed(figure):
    widgets = pytest.importorskip("ipywidgets")
    _, ask, body = figure.widget().children
    assert body.layout.display == "none"
    commit = next(w for w in ask.children[1].children if isinstance(w, widgets.Button))
    commit.click()
    assert body.layout.display == "" and figure.predicted is not None
    controls, shown, words, _ = body.children
    assert "<svg" in shown.value and html.unescape(words.value) == figure.text()
    name, control = next(iter(figure.controls.items()))
    said = words.value
    box = controls.children[0].children[0] if isinstance(control, Number) else controls.children[0]
    other = next(value for value in control.samples if value != control.value)
    box.value = other
    assert figure.settings[name] == other and words.value != said


def test_the_words_are_text(figure):
    """Text is text: it can be read, searched and enlarged, and is at least 12 pixels high at full width."""
    root = check_picture(figure)
    texts = [element for element in root.iter(f"{SVG}text")]
    assert len(texts) >= 4
    for element in texts:
        size = re.search(r"font(?:-size)?:[^;]*?([\d.]+)px", element.get("style", ""))
        assert size is None or float(size[1]) * 96 / 72 >= 11.9, "".join(element.itertext())


@pytest.mark.parametrize("number", [key for key in FIGURES if key in LESSONS])
def test_the_finding_of_the_lesson_holds(number):
    figure = FIGURES[number]()
    findings = load(number).FINDINGS
    assert len(findings) >= 3
    for line, holds in findings:
        figure.restore(line)
        assert holds(figure.data()), f"{figure.finding} does not hold at: {line}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_s_picture_is_this_figure_at_its_start(path):
    """Its alt text is what the figure says; if not, run make figures."""
    figure = FIGURES[path.name[:2]]()
    title = notebook.source(json.loads(path.read_text("utf-8"))["cells"][0])
    assert f"![{figure.finding} {figure.text()}](figures/{path.stem}.svg)" in title
    drawn = (path.parent / "figures" / f"{path.stem}.svg").read_text("utf-8")
    assert html.escape(figure.text()) in drawn
