"""Rows, streams and batches: the rows asked for, in an order that anybody can form again."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from minilayup.data import Rows, Stream, split, to_device
from minilayup.errors import ArgumentError

# --- Rows ---------------------------------------------------------------------------------------------------------

X, Y = torch.arange(12.0).view(6, 2), torch.tensor([2, 0, 1, 2, 0, 1])
PICK = torch.tensor([4, 0, 4])


class Items(Dataset[Any]):
    """A map-style Dataset without `targets`."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


PAIRS = Items([(X[i], int(Y[i])) for i in range(6)])


@pytest.mark.parametrize("source", [(X, Y), [X, Y], TensorDataset(X, Y), PAIRS, Subset(PAIRS, range(6)), Rows((X, Y))])
def test_rows_of_pairs(source: Any) -> None:
    rows = Rows(source)
    assert len(rows) == 6
    x, y = rows.batch(PICK)
    assert torch.equal(x, X[PICK]) and torch.equal(y, Y[PICK])
    labels = rows.labels()
    assert labels is not None and torch.equal(labels, Y)
    x, y = rows.to("cpu").batch(PICK)
    assert torch.equal(x, X[PICK]) and torch.equal(y, Y[PICK])


@pytest.mark.parametrize("key", ["label", "labels", "y"])
def test_rows_of_dicts(key: str) -> None:
    for source in ({"x": X, key: Y}, Items([{"x": X[i], key: int(Y[i])} for i in range(6)])):
        rows = Rows(source)
        batch = rows.batch(PICK)
        assert set(batch) == {"x", key} and torch.equal(batch["x"], X[PICK])
        labels = rows.labels()
        assert labels is not None and torch.equal(labels, Y)


def test_rows_of_one_tensor_or_one_in_a_tuple() -> None:
    assert torch.equal(Rows(X).batch(PICK), X[PICK])
    (only,) = Rows((X,)).batch(PICK)
    assert torch.equal(only, X[PICK])
    assert Rows(X).labels() is None and Rows((X,)).labels() is None


def test_rows_labels_prefer_targets() -> None:
    class WithTargets(Items):
        targets = Y.tolist()

        def __getitem__(self, i: int) -> Any:
            assert i == 0, "only the check of the first item may read one"
            return super().__getitem__(i)

    labels = Rows(WithTargets(PAIRS.items)).labels()
    assert labels is not None and torch.equal(labels, Y)


@pytest.mark.parametrize(
    "source",
    [(X, X), (X, Y.float()), (X, Y > 0), (X, Y[:, None]), {"x": X, "other": Y}, {"labels": X.long()}, Items([1, 2, 3])],
)
def test_rows_without_labels_say_so(source: Any) -> None:
    assert Rows(source).labels() is None


def test_rows_move_to_a_device() -> None:
    for source in ((X, Y), PAIRS):
        moved = Rows(source).to("meta")
        assert moved.device == torch.device("meta") and Rows(moved).device == moved.device
        assert all(part.device.type == "meta" for part in moved.batch(PICK))


class Endless(IterableDataset[int]):
    """Rows that have no numbers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Endless(), "IterableDataset: it has no row numbers"),
        (DataLoader(PAIRS), "give its `.dataset`"),
        ((X, Y[:5]), r"same number of rows .*\[5, 6\]"),
        ((X, torch.tensor(1)), "first dimension"),
        ((X, "labels"), "str has none"),
        ((), "same number of rows"),
        (X[:0], "no rows"),
        (Items([]), "no rows"),
        (X.numpy(), "torch.as_tensor"),
        (7, "not from int"),
        (Dataset(), r"a Dataset that has len\(\)"),
        (Items([object()]), "cannot be put into a batch"),
    ],
)
def test_rows_refuse(source: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Rows(source)


# --- Stream -------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.data(), st.integers(0, 2**40), st.booleans())
def test_stream_visits_every_row_once_an_epoch(n: int, draw: st.DataObject, seed: int, shuffle: bool) -> None:
    size = draw.draw(st.integers(1, n))
    stream = Stream(n, size, seed, shuffle)
    batches = [stream.rows(k) for k in range(3 * n)]
    assert all(len(batch) == size for batch in batches)
    epochs = torch.cat(batches).view(-1, n)  # 3 n batches are exactly 3 `size` epochs
    assert torch.equal(epochs.sort(dim=1).values, torch.arange(n).expand_as(epochs))
    if not shuffle:
        assert torch.equal(epochs, torch.arange(n).expand_as(epochs))


def test_stream_is_the_same_whoever_asks_and_in_any_order() -> None:
    stream, other = Stream(10, 3, seed=5), Stream(Rows(torch.zeros(10, 2)), 3, seed=5)
    forwards = [stream.rows(k).tolist() for k in range(60)]
    assert [other.rows(k).tolist() for k in reversed(range(60))] == forwards[::-1]
    assert stream.rows(59).tolist() == forwards[59] and stream.rows(0).tolist() == forwards[0]
    assert len(stream._recent) <= 4


def test_stream_differs_between_epochs_and_seeds() -> None:
    stream = Stream(50, 50, seed=0)
    orders = {tuple(stream.rows(k).tolist()) for k in range(20)}
    orders |= {tuple(Stream(50, 50, seed).rows(0).tolist()) for seed in (1, 2, 2**32, 2**32 + 1)}
    assert len(orders) == 24


def test_stream_of_a_shard_stays_inside_it() -> None:
    shard = torch.tensor([7, 1, 9, 4])
    assert sorted(torch.cat([Stream(shard, 2, 0).rows(k) for k in (0, 1)]).tolist()) == [1, 4, 7, 9]
    assert Stream(shard, 3, 0, shuffle=False).rows(1).tolist() == [4, 7, 1]


def test_stream_under_threads() -> None:
    stream, expected = Stream(40, 7, seed=1), [Stream(40, 7, seed=1).rows(k).tolist() for k in range(300)]
    wrong: list[int] = []

    def ask(step: int) -> None:
        wrong.extend(k for k in range(0, 300) if stream.rows(k * step % 300).tolist() != expected[k * step % 300])

    threads = [threading.Thread(target=ask, args=(step,)) for step in (1, 7, 11, 299)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 5, 0), "batch_size=5 is not allowed: there are only 4 rows"),
        ((4, 0, 0), "batch_size=0"),
        ((4, 2, -1), "seed=-1"),
        ((0, 1, 0), "rows=0"),
        ((torch.zeros(4), 1, 0), "1-D int64 tensor"),
        ((torch.zeros(2, 2, dtype=torch.long), 1, 0), "1-D int64 tensor"),
    ],
)
def test_stream_refuses(arguments: tuple[Any, int, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Stream(*arguments)


# --- batches ------------------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "x y")


def test_split_keeps_structure_and_loses_nothing() -> None:
    batch = {"pair": Pair(X, Y), "list": [X, (Y,)]}
    parts = split(batch, 3)
    assert len(parts) == 3 and all(isinstance(part["pair"], Pair) and type(part["list"]) is list for part in parts)
    assert torch.equal(torch.cat([part["pair"].x for part in parts]), X)
    assert torch.equal(torch.cat([part["list"][1][0] for part in parts]), Y)
    assert torch.equal(split((X, Y), 1)[0][0], X)


@pytest.mark.parametrize(
    ("batch", "parts", "message"),
    [
        ((X, Y), 4, "6 rows cannot be cut into 4 equal parts"),
        (X, 0, "parts=0"),
        (X[:0], 2, "0 rows"),
        ((X, "a"), 2, "str has none"),
    ],
)
def test_split_refuses(batch: Any, parts: int, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        split(batch, parts)


def test_to_device_moves_tensors_and_leaves_the_rest() -> None:
    moved = to_device({"x": (X, [Y]), "name": "a", "n": 3}, "meta")
    assert moved["x"][0].device.type == moved["x"][1][0].device.type == "meta"
    assert moved["name"] == "a" and moved["n"] == 3
