"""Every performance figure can be measured, and says the right thing about its bound.  No times are judged here."""

import json
import math

import pytest
import torch

from minilayup import bench
from minilayup.bench import Figure
from minilayup.errors import ArgumentError


def test_every_figure_can_be_measured():
    threads, told = torch.get_num_threads(), []
    figures = bench.run_all(pairs=1, tiny=True, progress=told.append)
    assert [f.name for f in figures] == told == list(bench.FIGURES)
    for figure in figures:
        assert math.isfinite(figure.median) and figure.median > 0 and figure.spread == 0
    assert torch.get_num_threads() == threads
    table = bench.main_table(figures)
    assert all(f.name in table and f.what in table for f in figures)
    stored = json.loads(bench.as_json(figures))
    assert [row["median"] for row in stored["figures"]] == [f.median for f in figures]
    assert "cores" in stored["machine"]


@pytest.mark.parametrize(
    "median, direction, met",
    [
        (0.9, "<=", True),
        (1.0, "<=", True),
        (1.1, "<=", False),
        (0.9, ">=", False),
        (1.0, ">=", True),
        (1.1, ">=", True),
    ],
)
def test_a_bound_has_a_direction(median, direction, met):
    figure = Figure("f", "a / b", median, 0.0, 1.0, direction)
    assert figure.met is met
    assert ("yes" if met else "NO") in bench.main_table([figure])
    assert json.loads(bench.as_json([figure]))["figures"][0]["met"] is met


def test_median_and_spread():
    figure = Figure.of("f", "a / b", [5.0, 1.0, 2.0, 4.0, 3.0], 1.0)
    assert (figure.median, figure.spread) == (3.0, 2.0)
    with pytest.raises(ArgumentError, match="direction"):
        Figure.of("f", "a / b", [1.0], 1.0, "<")


def test_pairs_alternate():
    order = []

    def ours():
        order.append("ours")
        return 2.0

    def theirs():
        order.append("theirs")
        return 4.0

    assert bench.ratios(ours, theirs, 2) == [0.5, 0.5]
    assert order == ["ours", "theirs", "ours", "theirs", "theirs", "ours"]  # the first two are not timed


def test_only_names_figures():
    assert [f.name for f in bench.run_all(pairs=1, only="step-m", tiny=True)] == ["step-mlp"]
    with pytest.raises(ArgumentError, match="import"):
        bench.run_all(pairs=1, only="imprt")
    with pytest.raises(ArgumentError, match="pairs"):
        bench.run_all(pairs=0)
