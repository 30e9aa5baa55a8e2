"""The data sets: what ships is what it says, and what is missing or damaged is said plainly."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import struct
import zlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torchvision

from minilayup import data, datasets
from minilayup.data import load_fashion_mnist, load_torchvision
from minilayup.errors import ArgumentError, DataError

SHIPPED = Path(__file__).parents[1] / "data"
ORIGINALS = Path("/usr/share/datasets/fashion-mnist")


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_fashion_mnist", SHIPPED / "make_fashion_mnist.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- Fashion-MNIST's subset ---------------------------------------------------------------------------------------


def test_fashion_mnist_is_balanced_and_normalised() -> None:
    (x, y), (test_x, test_y) = load_fashion_mnist()
    assert x.shape == (10_000, 1, 28, 28) and test_x.shape == (2_000, 1, 28, 28)
    assert x.dtype == torch.float32 and y.dtype == torch.int64
    assert y.bincount().tolist() == [1_000] * 10 and test_y.bincount().tolist() == [200] * 10
    assert abs(x.mean().item()) < 1e-4 and abs(x.std().item() - 1) < 1e-4
    assert (y[:-1] == y[1:]).float().mean() < 0.2  # shuffled, not sorted by class
    assert (SHIPPED / datasets.FASHION_MNIST_FILE).stat().st_size <= 6_000_000


def test_fashion_mnist_licence_is_there() -> None:
    text = (SHIPPED / "FASHION_MNIST_LICENSE").read_text()
    assert "Copyright (c) 2017 Zalando SE" in text and "Permission is hereby granted" in text


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason=f"the original files are not in {ORIGINALS}")
def test_fashion_mnist_made_again_is_the_same(tmp_path: Path) -> None:
    make = script()
    arrays = make.subset(ORIGINALS)
    assert make.contents_sha256(arrays) == datasets.FASHION_MNIST_SHA256
    make.write_npz(tmp_path / "again.npz", arrays)
    if "ng" not in zlib.ZLIB_RUNTIME_VERSION:  # zlib-ng packs the same contents into other bytes
        shipped = (SHIPPED / datasets.FASHION_MNIST_FILE).read_bytes()
        assert hashlib.sha256((tmp_path / "again.npz").read_bytes()).digest() == hashlib.sha256(shipped).digest()


def test_fashion_mnist_script_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["make", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"train-images-idx3-ubyte\.gz is missing\. Install"):
        script().main()


def test_fashion_mnist_zip_has_no_clock_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, arrays = script(), {"a": np.arange(6, dtype=np.uint8)}
    make.write_npz(tmp_path / "1.npz", arrays)
    monkeypatch.setattr("time.time", lambda: 2e9)
    make.write_npz(tmp_path / "2.npz", arrays)
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    assert np.load(tmp_path / "1.npz")["a"].tolist() == list(range(6))


def test_fashion_mnist_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is missing\. Make it again with: python data/make_fashion_mnist\.py"):
        load_fashion_mnist(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_fashion_mnist_damaged(tmp_path: Path, damage: str) -> None:
    good = (SHIPPED / datasets.FASHION_MNIST_FILE).read_bytes()
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
    bad = tmp_path / datasets.FASHION_MNIST_FILE
    bad.write_bytes({"cut": good[:middle], "flipped": flipped, "empty": b"", "other": b""}[damage])
    if damage == "other":
        zeros = np.zeros(3, np.uint8)
        np.savez(bad, train_x=zeros, train_y=zeros, test_x=zeros, test_y=zeros)
    with pytest.raises(DataError, match=f"is damaged. SHA-256 .*expected: {datasets.FASHION_MNIST_SHA256}"):
        load_fashion_mnist(tmp_path)


def test_fashion_mnist_folder_beats_environment_beats_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINILAYUP_DATA", raising=False)
    assert (datasets.data_folder() / datasets.FASHION_MNIST_FILE).is_file()
    monkeypatch.setenv("MINILAYUP_DATA", str(tmp_path / "there"))
    assert datasets.data_folder() == tmp_path / "there"
    assert datasets.data_folder(tmp_path) == tmp_path
    with pytest.raises(DataError, match="there"):
        load_fashion_mnist()
    shutil.copy(SHIPPED / datasets.FASHION_MNIST_FILE, tmp_path)
    monkeypatch.setenv("MINILAYUP_DATA", str(tmp_path))
    assert len(load_fashion_mnist()[0][0]) == 10_000


def test_a_wheel_finds_the_file_inside_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINILAYUP_DATA", raising=False)
    (tmp_path / "minilayup" / "_data").mkdir(parents=True)
    monkeypatch.setattr(datasets, "__file__", str(tmp_path / "minilayup" / "datasets.py"))
    assert datasets.data_folder() == (tmp_path / "minilayup" / "_data").resolve()


# --- torchvision's sets -------------------------------------------------------------------------------------------


def write_idx(path: Path, array: np.ndarray[Any, Any]) -> None:
    path.write_bytes(struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


def test_torchvision_fashion_mnist_from_its_own_layout(tmp_path: Path) -> None:
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    random = np.random.RandomState(0)
    for part, count in (("train", 20), ("t10k", 6)):
        write_idx(raw / f"{part}-images-idx3-ubyte", random.randint(0, 256, (count, 28, 28)).astype(np.uint8))
        write_idx(raw / f"{part}-labels-idx1-ubyte", (np.arange(count) % 10).astype(np.uint8))
    (x, y), (test_x, test_y) = load_torchvision("FashionMNIST", tmp_path)
    assert x.shape == (20, 1, 28, 28) and test_x.shape == (6, 1, 28, 28) and x.dtype == torch.float32
    assert y.tolist() == [*range(10), *range(10)] and y.dtype == test_y.dtype == torch.int64
    assert abs(x.mean().item()) < 1e-5 and abs(x.std().item() - 1) < 1e-4


def test_torchvision_cifar_channels_come_first_and_are_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(root: Path, train: bool, download: bool) -> SimpleNamespace:
        assert not download
        pictures = np.random.RandomState(train).randint(0, 256, (12, 32, 32, 3)).astype(np.uint8)
        pictures[..., 2] //= 4
        return SimpleNamespace(data=pictures, targets=list(range(12)))

    monkeypatch.setattr(torchvision.datasets, "CIFAR100", fake)
    (x, y), (test_x, _) = load_torchvision("CIFAR100")
    assert x.shape == test_x.shape == (12, 3, 32, 32) and y.dtype == torch.int64
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(3))
    assert test_x[:, 2].mean().abs() < 0.1  # normalised with the training set's own channel


@pytest.mark.parametrize("name", ["FashionMNIST", "CIFAR10", "CIFAR100"])
def test_torchvision_missing_says_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"{name} is not in .*give download=True"):
        load_torchvision(name, tmp_path)


def test_torchvision_offline_is_one_plain_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", unreachable)
    with pytest.raises(DataError, match=r"is this machine offline\? .*Name or service not known"):
        load_torchvision("CIFAR10", tmp_path, download=True)


def test_torchvision_unknown_or_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="Did you mean 'CIFAR10'"):
        load_torchvision("cifar10")
    monkeypatch.setitem(__import__("sys").modules, "torchvision", None)
    with pytest.raises(DataError, match="pip install torchvision"):
        load_torchvision("CIFAR10")


def test_everything_public_is_documented() -> None:
    for module in (data, datasets):
        assert all(name == "Pictures" or getattr(module, name).__doc__ for name in module.__all__)
