"""The data sets: Fashion-MNIST's subset, which ships with the library, and three sets read through torchvision."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .errors import DataError, choose

__all__ = ["Pictures", "data_folder", "load_fashion_mnist", "load_torchvision"]

Pictures = tuple[Tensor, Tensor]
"""Pictures x, float32 [N, C, H, W], and their labels y, int64 [N]."""

FASHION_MNIST_FILE = "fashion_mnist_subset.npz"
FASHION_MNIST_SHA256 = "f7830d79b73c178b0025b0baf67ddd64d293a9a1ed66a9c1c0baaad4dc3f9da0"
"""Of the contents, as `data/make_fashion_mnist.py` prints it."""
# Mean and standard deviation of all pixels of the subset's 10,000 training pictures, scaled to 0..1.
FASHION_MNIST_MEAN, FASHION_MNIST_STD = 0.28668, 0.35401


def data_folder(folder: str | Path | None = None) -> Path:
    """Where data lies: `folder`, else the environment's MINILAYUP_DATA, else what came with the package."""
    chosen = folder if folder is not None else os.environ.get("MINILAYUP_DATA")
    return Path(chosen).expanduser() if chosen else shipped_folder()


def shipped_folder() -> Path:
    """The `data` folder beside the package; a wheel has none and carries it inside, as `minilayup/_data`."""
    package = Path(__file__).resolve().parent
    inside = package / "_data"
    return inside if inside.is_dir() else package.parent / "data"


def load_fashion_mnist(folder: str | Path | None = None) -> tuple[Pictures, Pictures]:
    """Load the shipped subset of Fashion-MNIST: 10,000 training and 2,000 test pictures, (x, y) each.

    x is float32 [N, 1, 28, 28], normalised; y is int64 [N], 0 to 9, equally often. `DataError` if the file is missing
    or damaged. Source: Xiao, Rasul and Vollgraf 2017, arXiv 1708.07747.
    """
    path = data_folder(folder) / FASHION_MNIST_FILE
    again = "Make it again with: python data/make_fashion_mnist.py [folder of the four original .gz files]"
    if not path.is_file():
        raise DataError(f"{path} is missing. {again}, or say where it is (folder=..., or MINILAYUP_DATA=...).")
    names = ("test_x", "test_y", "train_x", "train_y")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
        found = hashlib.sha256(b"".join(arrays[name].tobytes() for name in names)).hexdigest()
    except Exception as error:  # zipfile, zlib, numpy and struct each have their own ways to stumble over bad bytes
        found = f"unreadable ({type(error).__name__}: {error})"
    if found != FASHION_MNIST_SHA256:
        raise DataError(
            f"{path} is damaged. SHA-256 of its contents: {found}, expected: {FASHION_MNIST_SHA256}. {again}."
        )
    x = {part: torch.from_numpy(arrays[f"{part}_x"]).unsqueeze(1).float() / 255 for part in ("train", "test")}
    y = {part: torch.from_numpy(arrays[f"{part}_y"]).long() for part in ("train", "test")}
    for pixels in x.values():
        pixels.sub_(FASHION_MNIST_MEAN).div_(FASHION_MNIST_STD)
    return (x["train"], y["train"]), (x["test"], y["test"])


def load_torchvision(name: str, folder: str | Path | None = None, download: bool = False) -> tuple[Pictures, Pictures]:
    """Load all of "FashionMNIST", "CIFAR10" or "CIFAR100" through torchvision, as (x, y) for training and test.

    x is float32 [N, C, H, W] (CIFAR: 740 MB in all), normalised per channel with the training set's mean and standard
    deviation; y is int64 [N]. Fetched from the internet only if `download`; `DataError` if it cannot be had.
    """
    choose("name", name, ("FashionMNIST", "CIFAR10", "CIFAR100"))
    root = data_folder(folder)
    try:
        import torchvision

        kind = getattr(torchvision.datasets, name)
        parts = [kind(root, train=train, download=download) for train in (True, False)]
    except ImportError as error:
        raise DataError(f"{name} is read with torchvision, which is not installed: pip install torchvision.") from error
    except (OSError, RuntimeError) as error:
        todo = (
            "is this machine offline? Try again, or copy it there from another machine"
            if download
            else ("give download=True to fetch it, or copy it there from another machine")
        )
        raise DataError(f"{name} is not in {root}, or not whole: {todo}. ({type(error).__name__}: {error})") from error
    xs = [torch.as_tensor(part.data) for part in parts]
    xs = [(x.unsqueeze(1) if x.dim() == 3 else x.permute(0, 3, 1, 2)).float().contiguous().div_(255) for x in xs]
    std, mean = torch.std_mean(xs[0], dim=(0, 2, 3), keepdim=True)
    train, test = ((x.sub_(mean).div_(std), torch.as_tensor(part.targets)) for x, part in zip(xs, parts, strict=True))
    return train, test
