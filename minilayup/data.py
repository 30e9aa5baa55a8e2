"""Rows of training data, the order in which they are visited, and who owns which.

A row is one training example and a batch is a few rows, always named by their numbers, so that workers share one copy
of the data and any batch can be formed again. The data sets themselves are in `datasets.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from .datasets import load_fashion_mnist, load_torchvision
from .errors import ArgumentError, number, positive_int

__all__ = ["Rows", "Stream", "load_fashion_mnist", "load_torchvision", "shards", "split", "to_device"]

IntArray = NDArray[np.int64]
LABEL_KEYS = ("label", "labels", "y")


class Rows:
    """Training or test data, reached by row number.

    `source` is a tensor, a tuple, list or dict of tensors (row i is element i of each), a `TensorDataset`, or any
    `torch.utils.data.Dataset` with `len` and `[i]`, whose items are put together by `default_collate`. Tensors move to
    a device once, as a whole; a Dataset's batches move one by one. Raises `ArgumentError` for anything else.
    """

    def __init__(self, source: Any) -> None:
        self.device: torch.device | None = None
        self.is_dataset = False
        if isinstance(source, Rows):
            source, self.device = source.source, source.device
        if isinstance(source, TensorDataset):
            source = source.tensors
        self.source: Any = tuple(source) if isinstance(source, list) else source
        if isinstance(self.source, (Tensor, tuple, Mapping)):
            self._count = _common_length(self.source)
        else:
            self.is_dataset = True
            self._count = _dataset_length(self.source)
        if self._count == 0:
            raise ArgumentError("There are no rows: the source is empty.")

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Rows({self._count:,} of a {type(self.source).__name__})"

    def batch(self, indices: Tensor) -> Any:
        """The rows with these numbers (int64 [B]), in this order: the source's structure, every tensor [B, ...]."""
        if self.is_dataset:
            items = default_collate([self.source[i] for i in indices.tolist()])
            return items if self.device is None else to_device(items, self.device)
        # index_select takes a third of the time of tensor[indices] for a batch of 64 pictures.
        return _map(lambda tensor: tensor.index_select(0, indices.to(tensor.device)), self.source)

    def to(self, device: torch.device | str) -> Rows:
        """The same rows on `device`."""
        moved = Rows(self.source if self.is_dataset else to_device(self.source, device))
        moved.device = torch.device(device)
        return moved

    def labels(self) -> Tensor | None:
        """Every row's class, int64 [N] on the CPU, or None if the rows do not say.

        The last tensor of a tuple, or the key "label", "labels" or "y", if it holds one whole number a row; for a
        Dataset its `targets`, or else the same places of each item, which reads the whole Dataset once.
        """
        if not self.is_dataset:
            return _whole_numbers(_last(self.source), self._count)
        targets = _whole_numbers(getattr(self.source, "targets", None), self._count)
        if targets is not None or _whole_numbers([_last(self.source[0])], 1) is None:
            return targets
        return _whole_numbers([_last(self.source[i]) for i in range(self._count)], self._count)


class Stream:
    """The endless order in which rows are visited: every row once an epoch, each epoch shuffled anew.

    `rows_or_indices` is a `Rows`, the number of rows, or the row numbers of a shard (int64 [N]). The epochs follow one
    another without a gap and are cut into batches of exactly `batch_size` rows, across their borders too. Batch k
    depends on the seed and k alone, so threads may ask in any order. `shuffle=False`: the rows in the order given,
    again and again. Raises `ArgumentError` if a batch is larger than an epoch.
    """

    def __init__(self, rows_or_indices: Rows | Tensor | int, batch_size: int, seed: int, shuffle: bool = True) -> None:
        given = len(rows_or_indices) if isinstance(rows_or_indices, Rows) else rows_or_indices
        self._indices = given.cpu() if isinstance(given, Tensor) else torch.arange(positive_int("rows", given))
        self.batch_size = positive_int("batch_size", batch_size)
        self.seed = positive_int("seed", seed, at_least=0)
        self.shuffle = shuffle
        if self._indices.dim() != 1 or self._indices.dtype != torch.int64:
            raise ArgumentError(f"Row numbers are a 1-D int64 tensor; given: {_describe(self._indices)}.")
        if self.batch_size > len(self._indices):
            raise ArgumentError(
                f"batch_size={batch_size} is not allowed: there are only {len(self._indices)} rows to draw from."
            )
        self._recent: dict[int, Tensor] = {}

    def rows(self, k: int) -> Tensor:
        """Row numbers of batch k (0, 1, 2, ...): int64 [batch_size]. Not to be written into: it may be a view."""
        epoch, start = divmod(k * self.batch_size, len(self._indices))
        batch = self._epoch(epoch)[start : start + self.batch_size]
        missing = self.batch_size - len(batch)
        return batch if missing == 0 else torch.cat([batch, self._epoch(epoch + 1)[:missing]])

    def _epoch(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return self._indices
        order = self._recent.get(epoch)
        if order is None:
            # torch's CPU generator reads only the lowest 32 bits of a seed: hash seed and epoch into those.
            mixed = np.random.SeedSequence(self.seed, spawn_key=(epoch,)).generate_state(1).item()
            order = self._indices[torch.randperm(len(self._indices), generator=torch.Generator().manual_seed(mixed))]
            # The dict is replaced, never changed, so threads need no lock; two that race merely do the work twice.
            self._recent = {**dict(list(self._recent.items())[-3:]), epoch: order}
        return order


def shards(labels: Tensor | int, workers: int, skew: float, seed: int) -> list[Tensor]:
    """Deal all rows out to the workers: one int64 tensor of row numbers each, ascending, no row twice.

    `labels` is every row's class (whole numbers, [N]), or just N if the rows have none. `skew` says how different the
    shares are. 0: a random split into equal parts. 1: the rows sorted by label and cut into equal parts. Between: each
    label's rows are shared out by a draw from a symmetric Dirichlet distribution over the workers with concentration
    alpha = (1 - skew) / skew, so 0.5 means alpha = 1, and sizes differ too; a worker that the draws starve gets rows
    from the largest, up to 1/(4 workers) of all and at least one. Source for alpha as a dial of skew: Hsu, Qi and Brown
    2019, arXiv 1909.06335 (one draw a worker, over labels); for one draw a label: Yurochkin et al. 2019, arXiv
    1905.12022.
    """
    workers, skew = positive_int("workers", workers), number("skew", skew, 0, 1)
    random = np.random.default_rng(positive_int("seed", seed, at_least=0))
    count = len(labels) if isinstance(labels, Tensor) and labels.dim() else positive_int("labels", labels)
    classes = _whole_numbers(labels, count)
    if workers > count:
        raise ArgumentError(f"workers={workers} is not allowed: there are only {count} rows to share.")
    order = random.permutation(np.arange(count, dtype=np.int64))
    if skew == 0:
        parts = np.array_split(order, workers)
    elif classes is None:
        raise ArgumentError(
            f"skew={skew} needs labels, because it says how unevenly they are shared out; these rows have none. Use "
            "skew=0, or rows whose last part is one whole number (the class) a row."
        )
    elif skew == 1:
        parts = np.array_split(order[np.argsort(classes.numpy()[order], kind="stable")], workers)
    else:
        parts = _dirichlet(classes.numpy()[order], order, workers, (1 - skew) / skew, random)
    return [torch.from_numpy(np.sort(part)) for part in parts]


def _dirichlet(
    classes: IntArray, order: IntArray, workers: int, alpha: float, random: np.random.Generator
) -> list[IntArray]:
    """Deal out the shuffled rows `order`, whose classes are `classes`, label by label."""
    pieces: list[list[IntArray]] = [[] for _ in range(workers)]
    for label in np.unique(classes):
        mine = order[classes == label]
        # The bounds keep a skew next to 0 or 1 from over- or underflowing inside the draw.
        shares = random.dirichlet(np.full(workers, min(max(alpha, 1e-6), 1e9)))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(mine)).astype(np.int64)
        for worker, piece in enumerate(np.split(mine, cuts)):
            pieces[worker].append(piece)
    parts = [random.permutation(np.concatenate(piece)) for piece in pieces]
    least = max(1, len(order) // (4 * workers))
    while (need := least - min(map(len, parts))) > 0:
        # The largest has at least the mean, four times `least` (or 2 rows if that is 1): it cannot starve in turn.
        poor, rich = min(range(workers), key=lambda w: len(parts[w])), max(range(workers), key=lambda w: len(parts[w]))
        parts[poor], parts[rich] = np.concatenate([parts[poor], parts[rich][:need]]), parts[rich][need:]
    return parts


def split(batch: Any, parts: int) -> list[Any]:
    """Cut every tensor of a batch (nested tuples, lists, dicts; all [B, ...]) into `parts` equal micro-batches."""
    positive_int("parts", parts)
    count = _common_length(batch)
    if count == 0 or count % parts:
        raise ArgumentError(
            f"A batch of {count} rows cannot be cut into {parts} equal parts: use a divisor of {count}."
        )
    size = count // parts
    return [_map(itemgetter(slice(start, start + size)), batch) for start in range(0, count, size)]


def to_device(batch: Any, device: torch.device | str) -> Any:
    """The batch with every tensor on `device`; whatever is not a tensor stays as it is."""
    return _map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, batch)


def _map(change: Callable[[Any], Any], batch: Any) -> Any:
    """Apply `change` to each leaf of nested tuples, lists and dicts; the structure stays."""
    if isinstance(batch, Mapping):
        return {key: _map(change, value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        items = [_map(change, value) for value in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return change(batch)


def _describe(value: Any) -> str:
    is_tensor = isinstance(value, Tensor)
    return f"a {value.dtype} tensor of shape {tuple(value.shape)}" if is_tensor else type(value).__name__


def _common_length(batch: Any) -> int:
    """The number of rows that all tensors of a structure share; `ArgumentError` if they do not."""
    leaves: list[Any] = []
    _map(leaves.append, batch)
    for leaf in leaves:
        if not isinstance(leaf, Tensor) or leaf.dim() == 0:
            raise ArgumentError(f"Rows are counted along a tensor's first dimension; {_describe(leaf)} has none.")
    counts = {len(leaf) for leaf in leaves}
    if len(counts) != 1:
        raise ArgumentError(f"All tensors must have the same number of rows (first size); given: {sorted(counts)}.")
    return int(counts.pop())


def _dataset_length(source: Any) -> int:
    """The number of items of a map-style Dataset; `ArgumentError` with the reason if it cannot serve as rows."""
    kind = type(source).__name__
    if isinstance(source, IterableDataset):
        raise ArgumentError(
            f"{kind} is an IterableDataset: it has no row numbers, so workers cannot share it and no "
            "batch could be formed again. Read it into tensors or a map-style Dataset."
        )
    if isinstance(source, DataLoader):
        raise ArgumentError("A DataLoader draws its own batches; give its `.dataset` instead.")
    is_dataset = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if isinstance(source, (np.ndarray, str, bytes)) or not is_dataset:
        raise ArgumentError(
            f"Rows are made from tensors (a tuple or dict of them) or a Dataset that has len() and [i], not from "
            f"{kind}; arrays: torch.as_tensor(array)."
        )
    count = len(source)
    try:
        default_collate([source[0]] if count else [0])
    except TypeError as error:
        raise ArgumentError(
            f"The items of this {kind} cannot be put into a batch; return tensors or numbers. ({error})"
        ) from error
    return count


def _last(item: Any) -> Any:
    """Where a label would be: the last of several parts, or under one of the usual keys."""
    if isinstance(item, Mapping):
        return next((item[key] for key in LABEL_KEYS if key in item), None)
    return item[-1] if isinstance(item, (tuple, list)) and len(item) > 1 else None


def _whole_numbers(values: Any, count: int) -> Tensor | None:
    """`values` as an int64 tensor if they are `count` whole numbers in one dimension, else None."""
    try:
        tensor = torch.as_tensor(values).cpu()
    except (TypeError, ValueError, RuntimeError):
        return None
    whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    return tensor.long() if whole and tensor.dim() == 1 and len(tensor) == count else None
