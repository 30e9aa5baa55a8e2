"""Shares of the rows: no row lost or given twice, nobody starved, as uneven as asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minilayup.data import shards
from minilayup.errors import ArgumentError

TEN = torch.arange(1_000) % 10


def sizes(parts: list[Tensor]) -> list[int]:
    return [len(part) for part in parts]


def unevenness(parts: list[Tensor]) -> float:
    """Mean distance between a worker's label shares and the whole's, 0 to 0.9 for ten labels."""
    shares = torch.stack([TEN[part].bincount(minlength=10) / len(part) for part in parts])
    return (shares - 0.1).abs().sum(1).mean().item() / 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-2, 4), min_size=1, max_size=60),
    st.data(),
    st.sampled_from([0, 1e-300, 1e-3, 0.5, 0.99, 1 - 1e-16, 1]),
    st.integers(0, 9),
)
def test_shards_are_a_partition_and_nobody_starves(
    labels: list[int], draw: st.DataObject, skew: float, seed: int
) -> None:
    n = len(labels)
    workers = draw.draw(st.integers(1, n))
    parts = shards(torch.tensor(labels), workers, skew, seed)
    assert len(parts) == workers and torch.equal(torch.cat(parts).sort().values, torch.arange(n))
    assert all(part.dtype == torch.int64 and torch.equal(part, part.sort().values) for part in parts)
    assert min(sizes(parts)) >= max(1, n // (4 * workers))


def test_shards_without_skew_are_equal_and_random() -> None:
    parts = shards(1_001, 4, 0, seed=0)
    assert sorted(sizes(parts)) == [250, 250, 250, 251]
    assert unevenness(shards(TEN, 4, 0.0, seed=0)) < 0.1
    assert torch.equal(shards(5, 1, 0, seed=0)[0], torch.arange(5))  # one worker keeps the order


def test_shards_fully_skewed_are_sorted_by_label() -> None:
    parts = shards(TEN, 5, 1, seed=0)
    assert sizes(parts) == [200] * 5
    assert [TEN[part].unique().tolist() for part in parts] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_shards_between_grow_more_uneven() -> None:
    means = [sum(unevenness(shards(TEN, 4, skew, seed)) for seed in range(8)) / 8 for skew in (0, 0.1, 0.5, 0.9, 1)]
    assert means == sorted(means) and means[0] < 0.1 and means[-1] > 0.6


def test_shards_follow_the_dirichlet_distribution() -> None:
    """Var of one share is (1/m)(1 - 1/m) / (m alpha + 1); 10 labels, 4 workers, 200 seeds: within 15 %."""
    workers, alpha = 4, 1.0
    draws = [shards(TEN, workers, 1 / (1 + alpha), seed) for seed in range(200)]
    shares = torch.stack([TEN[part].bincount(minlength=10) / 100 for parts in draws for part in parts])
    expected = (1 / workers) * (1 - 1 / workers) / (workers * alpha + 1)
    assert abs(shares.var().item() / expected - 1) < 0.15


def test_shards_replay_by_seed() -> None:
    for skew in (0, 0.5, 1):
        first, again, other = (shards(TEN, 3, skew, seed) for seed in (4, 4, 5))
        assert all(map(torch.equal, first, again)) and not all(map(torch.equal, first, other))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((100, 2, 0.5, 0), "skew=0.5 needs labels, because"),
        ((torch.zeros(5, 2), 2, 1, 0), "needs labels"),
        ((5, 6, 0, 0), "workers=6 is not allowed: there are only 5 rows"),
        ((5, 0, 0, 0), "workers=0"),
        ((TEN, 2, 1.5, 0), r"skew=1\.5 .* at least 0 and at most 1"),
        ((TEN, 2, 0.5, -1), "seed=-1"),
    ],
)
def test_shards_refuse(arguments: tuple[Any, int, float, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        shards(*arguments)
