"""What is to be learnt: a model, training rows, test rows and a loss, in one `Task`; and the tasks that are ready-made.

task = fashion_mnist(model="cnn")                                  # ships with the library
task = Task(lambda: mlp(64), (x, y), (x2, y2), classification_loss)  # your own
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import models
from .data import Rows, load_fashion_mnist, load_torchvision, shards
from .errors import ArgumentError, choose, number, positive_int

__all__ = [
    "ModelMaker",
    "Quadratic",
    "Task",
    "by_name",
    "cifar10",
    "cifar100",
    "classification_accuracy",
    "classification_loss",
    "fashion_mnist",
    "language_model_loss",
    "make",
    "quadratic",
    "quadratic_loss",
]


EIGENVALUES = tuple(torch.linspace(0.1, 1.0, 20, dtype=torch.float64).tolist())
"""The default curvatures of `quadratic`: 20 of them, evenly from 0.1 to 1."""


@dataclass
class Task:
    """A learning problem.

    model: makes a fresh `nn.Module` when called without arguments; a module is accepted too, and copied at each call.
    train, test: anything that `Rows` takes; they become `Rows`.
    loss: (module, batch) -> the mean loss of the batch, 0-d.
    accuracy: (module, batch) -> the fraction of the batch that is right, 0-d; None: only the loss is evaluated.
    skew: how different the workers' shares of the training rows are, 0 to 1 (see `data.shards`).
    Raises `ArgumentError` for what cannot work.
    """

    model: Callable[[], nn.Module]
    train: Any
    test: Any
    loss: Callable[[nn.Module, Any], Tensor]
    accuracy: Callable[[nn.Module, Any], Tensor] | None = None
    name: str = "task"
    skew: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.model, ModelMaker):
            self.model = ModelMaker(self.model)
        _check_callable("loss", self.loss, "classification_loss")
        if self.accuracy is not None:
            _check_callable("accuracy", self.accuracy, "classification_accuracy")
        self.skew = number("skew", self.skew, 0, 1)
        for part in ("train", "test"):
            try:
                setattr(self, part, Rows(getattr(self, part)))
            except ArgumentError as error:
                raise ArgumentError(f"{part}: {error}") from None

    def skewed(self, skew: float) -> Task:
        """A copy whose workers' shares differ by `skew`, 0 to 1."""
        return replace(self, skew=skew)

    def to(self, device: torch.device | str) -> Task:
        """A copy with the rows on `device`; the model is moved by whoever makes it."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))

    def shards(self, workers: int, seed: int) -> list[Tensor]:
        """Row numbers of each worker's share of the training rows: int64 tensors, a partition of all rows."""
        labels = self.train.labels() if self.skew > 0 else None
        return shards(len(self.train) if labels is None else labels, workers, self.skew, seed)


@dataclass(frozen=True)
class ModelMaker:
    """A checked way to a fresh model: calls `source`, or copies it if it is a module."""

    source: Any

    def __post_init__(self) -> None:
        if isinstance(self.source, nn.Module):
            return
        if not callable(self.source):
            raise ArgumentError(
                f"model={self.source!r} is not allowed: it must be a function without arguments that returns an "
                "nn.Module, or an nn.Module. For example: model=lambda: mlp(width=64)."
            )
        try:
            inspect.signature(self.source).bind()
        except TypeError as error:
            raise ArgumentError(
                f"model is called without arguments, and {self.source!r} does not allow that ({error}). "
                "Wrap it: model=lambda: Net(...)."
            ) from None
        except ValueError:  # a callable that cannot say what it takes
            pass

    def __call__(self) -> nn.Module:
        module = copy.deepcopy(self.source) if isinstance(self.source, nn.Module) else self.source()
        if not isinstance(module, nn.Module):
            raise ArgumentError(f"model() must return an nn.Module; it returned a {type(module).__name__}.")
        return module


def _check_callable(what: str, given: Any, example: str) -> None:
    """Refuse what is not called as (module, batch), above all PyTorch's losses, which take (logits, labels)."""
    takes_logits = isinstance(given, nn.Module) or getattr(given, "__module__", "") == F.__name__
    if callable(given) and not takes_logits:
        return
    reason = "takes predictions and labels" if takes_logits else "cannot be called"
    raise ArgumentError(
        f"{what} is called as {what}(module, batch), but {given!r} {reason}. Use tasks.{example}, or write "
        f"for example: lambda module, batch: F.cross_entropy(module(batch[0]), batch[1])."
    )


def classification_loss(module: nn.Module, batch: Any) -> Tensor:
    """Mean cross-entropy of a batch (x, y): y int64 [B], module(x) the logits [B, classes]. 0-d, in nats."""
    x, y = batch
    return F.cross_entropy(module(x), y)


def classification_accuracy(module: nn.Module, batch: Any) -> Tensor:
    """The fraction of a batch (x, y) whose largest logit is the label's. 0-d, 0 to 1."""
    x, y = batch
    right: Tensor = module(x).argmax(dim=1) == y
    return right.float().mean()


def language_model_loss(module: nn.Module, batch: Any) -> Tensor:
    """Mean cross-entropy of each next token, 0-d, in nats. The batch is int64 tokens [B, T + 1], or a tuple of them.

    The module sees the first T tokens and its logits [B, T, vocabulary] are held against the last T.
    """
    tokens = batch if isinstance(batch, Tensor) else batch[0]
    return F.cross_entropy(module(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def fashion_mnist(
    model: str = "mlp", full: bool = False, skew: float = 0.0, folder: str | Path | None = None, download: bool = False
) -> Task:
    """Clothes in 10 classes, 1x28x28: 10,000 training and 2,000 test pictures, shipped with the library.

    `model` is "mlp", "cnn" or "resnet18". `full=True`: all 60,000 and 10,000, through torchvision, fetched only if
    `download`. `folder`: where the data lies, if not in the usual place (`datasets.data_folder`).
    """
    kinds: dict[str, Callable[..., nn.Module]] = {"mlp": models.mlp, "cnn": models.cnn, "resnet18": models.resnet18}
    make = kinds[choose("model", model, kinds)]
    if download and not full:
        raise ArgumentError("download=True goes with full=True: the subset ships with the library.")
    train, test = load_torchvision("FashionMNIST", folder, download) if full else load_fashion_mnist(folder)
    name = f"Fashion-MNIST{'' if full else ' subset'}, {model}"
    return Task(make, train, test, classification_loss, classification_accuracy, name, skew)


def cifar10(
    model: str = "resnet18", skew: float = 0.0, folder: str | Path | None = None, download: bool = False
) -> Task:
    """CIFAR-10: 3x32x32, 10 classes, 50,000 training and 10,000 test pictures, read through torchvision.

    `model` is "resnet18" or "cnn". Fetched only if `download`. Source: Krizhevsky 2009.
    """
    return _cifar("CIFAR10", 10, model, skew, folder, download)


def cifar100(
    model: str = "resnet18", skew: float = 0.0, folder: str | Path | None = None, download: bool = False
) -> Task:
    """CIFAR-100: as `cifar10`, with 100 classes."""
    return _cifar("CIFAR100", 100, model, skew, folder, download)


def _cifar(name: str, classes: int, model: str, skew: float, folder: str | Path | None, download: bool) -> Task:
    kinds: dict[str, Callable[..., nn.Module]] = {"resnet18": models.resnet18, "cnn": models.cnn}
    make = partial(kinds[choose("model", model, kinds)], classes=classes, channels=3)
    train, test = load_torchvision(name, folder, download)
    return Task(make, train, test, classification_loss, classification_accuracy, f"{name}, {model}", skew)


class Quadratic(nn.Module):
    """Loss of a batch xi [B, d]: 1/2 theta' H theta + noise * theta . mean(xi), 0-d. theta [d] is the one parameter.

    So the gradient is H theta + noise * mean(xi) and the curvature is H, the buffer `hessian` [d, d], everywhere.
    """

    def __init__(self, hessian: Tensor, start: Tensor, noise: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(start.clone())
        self.register_buffer("hessian", hessian.clone())
        self.hessian: Tensor
        self.noise = noise

    def forward(self, xi: Tensor) -> Tensor:
        return 0.5 * self.theta @ self.hessian @ self.theta + self.noise * (self.theta @ xi.mean(dim=0))


def quadratic_loss(module: nn.Module, batch: Any) -> Tensor:
    """The loss that the module itself returns for the batch, 0-d."""
    loss: Tensor = module(batch)
    return loss


def quadratic(
    eigenvalues: Iterable[float] = EIGENVALUES,
    noise: float = 0.0,
    rows: int = 512,
    seed: int = 0,
) -> Task:
    """A quadratic bowl whose gradients and curvature are known exactly, to hold theory against.

    `eigenvalues` (d of them, >= 0) are H's, in an orthogonal basis drawn with `seed`, as are the start theta ~ N(0, I)
    and the training rows xi ~ N(0, I), float32 [rows, d], centred: over all rows the noise cancels. `noise` >= 0 is the
    standard deviation of one row's gradient, per coordinate. The test row is 0: the test loss is 1/2 theta' H theta.
    """
    values = [number("eigenvalues", value, low=0) for value in eigenvalues]
    noise, d = number("noise", noise, low=0), positive_int("the number of eigenvalues", len(values))
    positive_int("rows", rows)
    random = torch.Generator().manual_seed(positive_int("seed", seed, at_least=0))
    basis = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=random)).Q
    half = basis * torch.tensor(values, dtype=torch.float64).sqrt()
    hessian = (half @ half.T).float()
    start, xi = torch.randn(d, generator=random), torch.randn(rows, d, generator=random)
    make = partial(Quadratic, hessian, start, noise)
    return Task(make, xi - xi.mean(dim=0), torch.zeros(1, d), quadratic_loss, name=f"quadratic, d = {d}")


def make(name: str, model: str | None = None, skew: float = 0.0, download: bool = False) -> Task:
    """A ready-made task by the name it has on the command line; ``model=None`` is the task's own default."""
    maker = by_name[choose("task", name, by_name)]
    given = {"model": model, "skew": skew or None, "download": download or None}
    options = {key: value for key, value in given.items() if value is not None}
    unknown = options.keys() - inspect.signature(maker).parameters.keys()
    if unknown:
        raise ArgumentError(f"task {name!r} has no {' and no '.join(sorted(unknown))} to choose.")
    return maker(**options)


by_name: dict[str, Callable[..., Task]] = {
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "quadratic": quadratic,
}
"""The tasks as the command line names them."""
