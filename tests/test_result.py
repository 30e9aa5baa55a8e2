"""What a run leaves: numbers, words, curves and JSON; and several runs side by side."""

import json
import math
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pytest
import torch

import minilayup as lu
from minilayup.errors import ArgumentError
from minilayup.models import mlp
from minilayup.result import finite, machine
from minilayup.table import Table

matplotlib.use("Agg")


def task(accuracy: bool = True, name: str = "toy") -> lu.Task:
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(64, 4, generator=random), torch.arange(64) % 3
    measure = lu.tasks.classification_accuracy if accuracy else None
    model = partial(mlp, width=4, hidden=1, inputs=4, classes=3)
    return lu.Task(model, (x, y), (x, y), lu.tasks.classification_loss, measure, name)


def train(method: lu.Method, given: lu.Task | None = None, **options) -> lu.Result:
    defaults = {"engine": "virtual", "samples": 96, "batch_size": 8, "progress": False}
    return lu.train(given or task(), method, **{**defaults, **options})


def compare(methods, given: lu.Task | None = None, **options) -> lu.Comparison:
    defaults = {"engine": "virtual", "samples": 96, "batch_size": 8, "seeds": 2, "progress": False}
    return lu.compare(given or task(), methods, **{**defaults, **options})


def with_scores(*scores: float, metric: str = "accuracy") -> lu.Result:
    """A result whose curve is known: 100 samples, 10 updates and 2 seconds between points."""
    result = train(lu.SGD())
    points = [lu.Point(100 * k, 10 * k, 2.0 * k, 0.0, score, score, 0.0, (0.0,)) for k, score in enumerate(scores)]
    return replace(result, points=points, metric=metric)


# -- one run -----------------------------------------------------------------------------------------------------------
def test_to_target_interpolates() -> None:
    result = with_scores(0.1, 0.5, 0.4, 0.8)
    assert result.to_target(0.3, "samples") == pytest.approx(50)
    assert result.to_target(0.3, "updates") == pytest.approx(5)
    assert result.to_target(0.3) == pytest.approx(1.0)
    assert result.to_target(0.5, "samples") == 100  # exactly at a point
    assert result.to_target(0.6, "samples") == pytest.approx(250)  # the first time, after a dip
    assert result.to_target(0.05, "samples") == 0  # from the start
    assert result.to_target(0.81) == math.inf


def test_to_target_of_a_loss_goes_down() -> None:
    result = with_scores(2.0, 1.0, 1.0, 0.5, metric="loss")
    assert result.to_target(1.5, "samples") == pytest.approx(50)
    assert result.to_target(0.75, "samples") == pytest.approx(250)
    assert result.to_target(0.1) == math.inf


def test_unknown_axes_are_refused() -> None:
    result = train(lu.SGD())
    for call in (partial(result.to_target, 0.5), result.curve, result.plot):
        with pytest.raises(ArgumentError, match=r"x='sample' is not known. Did you mean 'samples'"):
            call("sample")


def test_summary_says_what_each_number_is() -> None:
    text = train(lu.LayUp(2)).summary()
    for phrase in ("LayUp() on toy: test accuracy", "% (mean model) after 96 samples", "virtual s", "samples/virtual s",
                   "2 threads, 12 updates; evaluated afterwards", "worker 0 alone", "drift", "MB put",
                   "staleness: mean"):  # fmt: skip
        assert phrase in text
    text = train(lu.SGD(), task(accuracy=False), trace=False, engine="threads").summary()
    assert "test loss" in text and "1 thread," in text and "virtual" not in text
    assert "%" not in text and "staleness" not in text and "drift" not in text
    lossy = train(lu.LayUp(2, probability=1.0), link=lu.Link(latency=0.1, loss=1.0)).summary()
    assert "24 messages lost, 0 puts skipped" in lossy


def test_counts_add_up() -> None:
    result = train(lu.SyncSGD(2))
    assert (result.samples, result.updates, result.threads, result.workers) == (96, 6, 2, 2)
    assert [point.samples for point in result.points] == sorted({point.samples for point in result.points})
    assert result.points[0].samples == 0 and result.points[-1].samples == 96
    assert result.score == result.points[-1].score
    assert result.samples_per_second == pytest.approx(96 / result.seconds)


@pytest.mark.parametrize(("x", "label"), [("samples", "samples"), ("seconds", "seconds (virtual s)")])
def test_plot_labels_its_axes(x: str, label: str) -> None:
    from matplotlib import pyplot as plt

    result = train(lu.SGD())
    axes = result.plot(x)
    assert (axes.get_xlabel(), axes.get_ylabel()) == (label, "test accuracy")
    assert len(axes.lines[0].get_xdata()) == len(result.points)
    assert result.plot(x, axes) is axes and len(axes.lines) == 2
    plt.close("all")


@pytest.mark.parametrize("method", [lu.SGD(), lu.LayUp(2)], ids=str)
def test_saved_json_is_strict_and_complete(method: lu.Method, tmp_path: Path) -> None:
    result = train(method, slow={0: 2.0}, link=lu.Link(latency=0.1))
    text = result.save(tmp_path / "result.json").read_text(encoding="utf-8")
    saved = json.loads(text, parse_constant=pytest.fail)  # no bare NaN or Infinity
    assert saved["points"][0]["loss"] is None  # nothing was trained before the first point
    assert saved["points"][-1]["score"] == result.score
    assert saved["settings"]["slow"] == {"0": 2.0} and saved["settings"]["seed"] == 0
    assert saved["settings"]["machine"] == machine() and {"torch", "python", "cores"} <= machine().keys()
    assert sum(saved["staleness"].values()) == len(result.trace.events("write"))
    assert "model" not in saved and "trace" not in saved


def test_finite() -> None:
    given = {"a": math.nan, "b": [1.5, math.inf, (-math.inf, "NaN")], "c": {1: True}}
    assert finite(given) == {"a": None, "b": [1.5, None, [None, "NaN"]], "c": {1: True}}


# -- several runs ------------------------------------------------------------------------------------------------------
METHODS = [lu.SGD(), lu.SyncSGD(2), lu.Hogwild(2), lu.PDASGD(1, 1), lu.LayUp(2)]


def test_all_methods_start_from_the_same_weights() -> None:
    comparison = compare(METHODS, rule=lu.rules.SGD(lr=0.0))  # nobody moves: the end is the start
    assert list(comparison.results) == [str(method) for method in METHODS]
    for seed in range(2):
        ends = [torch.cat([p.flatten() for p in runs[seed].model.parameters()]) for runs in comparison.results.values()]
        assert all(torch.equal(end, ends[0]) for end in ends)
        assert len({runs[seed].points[0].score for runs in comparison.results.values()}) == 1
    first, second = ([p for p in run.model.parameters()] for run in comparison.results["SGD()"])
    assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_table() -> None:
    comparison = compare(METHODS, target=0.99)
    table = comparison.table()
    assert table.columns == [
        "method", "threads", "samples/virtual s", "virtual s", "virtual s to 99%", "updates to 99%", "samples to 99%",
        "final accuracy", "staleness mean", "max", "drift", "MB put", "lr",
    ]  # fmt: skip
    assert [row[0] for row in table.rows] == [str(method) for method in METHODS]
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert all(row[4:7] == ["never"] * 3 for row in table.rows)
    text = str(table)
    assert "Mean over 2 seeds, ± standard deviation. Times in virtual s." in text
    assert "Updates for each sample differ" in text  # SyncSGD's
    lines = text.splitlines()
    assert len({len(line) for line in lines[2:9]}) == 1  # aligned
    assert "One seed. Times in virtual s." in str(compare([lu.SGD()], seeds=1).table())
    assert "not traced" in str(compare([lu.SGD()], seeds=1, trace=False).table())


def test_some_seeds_reach_the_target() -> None:
    runs = [with_scores(0.1, 0.5), with_scores(0.1, 0.9)]
    row = lu.Comparison("two seeds", {"m": runs}, target=0.66).table().rows[0]
    assert row[4:7] == ["1.40 (1 of 2)", "7 (1 of 2)", "70 (1 of 2)"]
    row = lu.Comparison("two seeds", {"m": runs}, target=0.34).table().rows[0]
    assert row[6] == "45" and row[7] == "70.0% ± 28.3"


def test_a_table_without_runs() -> None:
    assert "no run was finished" in str(lu.Comparison("t", {"SGD()": []}).table())


class Texts(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_html_is_escaped() -> None:
    evil = "<script>alert('1 & 2')</script>"
    page = Table(evil, [evil, evil], [[evil, evil]], [evil])._repr_html_()
    found = Texts(page)
    assert "script" not in found.tags and found.texts.count(evil) == 6
    comparison = compare({evil: lu.SGD()}, task(name=evil), seeds=1)
    assert "script" not in Texts(comparison.table()._repr_html_()).tags


def test_comparison_plot() -> None:
    from matplotlib import pyplot as plt

    axes = compare(METHODS[:2]).plot("seconds")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("seconds (virtual s)", "test accuracy of the mean model")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["SGD()", "SyncSGD()"]
    styles = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(styles) == 2  # told apart without colour, too
    plt.close("all")


def test_comparison_is_saved_as_strict_json(tmp_path: Path) -> None:
    path = compare(METHODS, seeds=1, target=0.9).save(tmp_path / "comparison.json")
    saved = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert set(saved["results"]) == {str(method) for method in METHODS} and saved["target"] == 0.9


def test_names_rules_and_seeds() -> None:
    rules = {"a": lu.rules.SGD(lr=0.1), "b": lu.rules.SGD(lr=0.2)}
    comparison = compare({"a": lu.SGD(), "b": lu.SGD()}, rule=rules, seeds=[3, 5])
    assert [run.settings["lr"] for run in comparison.results["b"]] == [0.2, 0.2]
    assert [run.settings["seed"] for run in comparison.results["a"]] == [3, 5]


def test_slow_applies_where_there_is_such_a_worker() -> None:
    comparison = compare([lu.SGD(), lu.LayUp(2)], slow={1: 4.0}, seeds=1)
    assert comparison.results["SGD()"][0].settings["slow"] == {}
    assert comparison.results["LayUp()"][0].settings["slow"] == {"1": 4.0}
    assert "slowed: {1: 4.0}" in comparison.title


def test_interrupted_in_the_middle_keeps_what_was_finished() -> None:
    def interrupt(comparison: lu.Comparison, name: str, seed: int) -> None:
        if (name, seed) == ("SyncSGD()", 1):
            raise KeyboardInterrupt

    into = lu.Comparison("mine", {})
    with pytest.raises(KeyboardInterrupt):
        compare(METHODS[:3], seeds=3, finished=interrupt, into=into)
    assert {name: len(runs) for name, runs in into.results.items()} == {"SGD()": 2, "SyncSGD()": 2, "Hogwild()": 1}
    assert "Mean over 1/2 seeds" in str(into.table())


def test_diverged_runs_are_told_and_in_no_mean() -> None:
    rules = {"calm": lu.rules.SGD(lr=0.05), "wild": lu.rules.SGD(lr=1e30)}
    comparison = compare({"calm": lu.SGD(), "wild": lu.SGD()}, rule=rules)
    assert len(comparison.results["calm"]) == 2 and comparison.results["wild"] == []
    text = str(comparison.table())
    assert "wild: 2 runs diverged, in no mean above. The first: seed 0: " in text
    assert [row[0] for row in comparison.table().rows] == ["calm"]
    json.dumps(comparison.to_dict(), allow_nan=False)
