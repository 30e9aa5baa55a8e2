"""Tasks: what they refuse, what they copy, and that the ready-made ones are what they say."""

from __future__ import annotations

import inspect
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minilayup import tasks
from minilayup.data import Rows
from minilayup.errors import ArgumentError, DataError
from minilayup.models import gpt, mlp
from minilayup.tasks import Task, classification_accuracy, classification_loss, language_model_loss, quadratic

X, Y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 4


def net() -> nn.Module:
    return mlp(width=8, hidden=1, inputs=3, classes=4)


def small(**changes: Any) -> Task:
    return Task(**{"model": net, "train": (X, Y), "test": (X[:10], Y[:10]), "loss": classification_loss, **changes})


# --- Task ---------------------------------------------------------------------------------------------------------


def test_task_wraps_its_rows_and_makes_fresh_models() -> None:
    task = small(accuracy=classification_accuracy)
    assert isinstance(task.train, Rows) and len(task.train) == 40 and len(task.test) == 10
    assert task.model() is not task.model() and isinstance(task.model(), nn.Module)
    batch = task.train.batch(torch.arange(5))
    assert task.loss(task.model(), batch).shape == ()
    assert task.accuracy is not None and 0 <= task.accuracy(task.model(), batch).item() <= 1


def test_task_follows_the_random_seed_and_does_not_touch_it() -> None:
    torch.manual_seed(3)
    task = small()
    first = task.model().state_dict()
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(first.values(), net().state_dict().values()))


def test_task_takes_a_class_or_a_module_and_copies_the_module() -> None:
    class Net(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 4)

    assert isinstance(small(model=Net).model(), Net)
    module = net()
    one, two = small(model=module).model(), small(model=module).model()
    for parameter, copied, again in zip(module.parameters(), one.parameters(), two.parameters()):
        assert torch.equal(parameter, copied) and len({p.data_ptr() for p in (parameter, copied, again)}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": 3}, "model=3 is not allowed: it must be a function without arguments"),
        ({"model": "cnn"}, "model='cnn' is not allowed"),
        ({"model": nn.Linear}, "model is called without arguments.*in_features.*Wrap it"),
        ({"model": lambda width: net()}, "model is called without arguments.*width"),
        (
            {"loss": nn.CrossEntropyLoss()},
            r"loss\(module, batch\), but CrossEntropyLoss.* takes predictions and labels",
        ),
        ({"loss": F.cross_entropy}, "takes predictions and labels. Use tasks.classification_loss"),
        ({"loss": None}, "but None cannot be called"),
        ({"accuracy": 0.5}, "accuracy is called as .* 0.5 cannot be called. Use tasks.classification_accuracy"),
        ({"skew": 2}, "skew=2"),
        ({"skew": math.nan}, "skew=nan"),
        ({"train": (X, Y[:3])}, "^train: All tensors must have the same number of rows"),
        ({"test": 5}, "^test: Rows are made from"),
    ],
)
def test_task_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        small(**changes)


def test_task_refuses_a_model_that_makes_no_module() -> None:
    with pytest.raises(ArgumentError, match=r"model\(\) must return an nn.Module; it returned a int"):
        small(model=lambda: 3).model()


def test_task_copies() -> None:
    task = small(name="mine")
    skewed = task.skewed(0.5)
    assert (skewed.skew, task.skew, skewed.name) == (0.5, 0.0, "mine")
    with pytest.raises(ArgumentError, match="skew=-1"):
        task.skewed(-1)
    moved = task.to("meta")
    assert (
        moved.train.batch(torch.arange(2))[0].device.type == moved.test.batch(torch.arange(2))[1].device.type == "meta"
    )
    assert task.train.batch(torch.arange(2))[0].device.type == "cpu"
    assert moved.skewed(1.0).train.device == torch.device("meta")


def test_task_shards() -> None:
    for task in (small(), small(skew=0.5), small(skew=1)):
        parts = task.shards(workers=4, seed=0)
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(40))
    assert [Y[part].unique().tolist() for part in small(skew=1).shards(4, 0)] == [[0], [1], [2], [3]]
    assert len(small(train=X, loss=lambda module, batch: module(batch).sum()).shards(3, 0)) == 3
    with pytest.raises(ArgumentError, match="needs labels"):
        quadratic().skewed(0.5).shards(2, 0)


# --- losses -------------------------------------------------------------------------------------------------------


def test_classification_loss_and_accuracy() -> None:
    module, batch = nn.Identity(), (torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    assert classification_accuracy(module, batch).item() == pytest.approx(2 / 3)
    expected = (math.log1p(math.exp(-1)) + math.log1p(math.exp(-3)) + math.log1p(math.exp(1))) / 3
    assert classification_loss(module, batch).item() == pytest.approx(expected, rel=1e-6)


def test_language_model_loss_predicts_the_next_token() -> None:
    class Knows(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return 50.0 * F.one_hot((tokens + 1) % 8, 8).float()

    tokens = (torch.arange(3)[:, None] + torch.arange(6)) % 8
    assert language_model_loss(Knows(), tokens).item() < 1e-6
    assert language_model_loss(Knows(), tokens.flip(1)).item() > 10
    model = gpt(vocabulary=8, layers=1, width=8, heads=2, context=5)
    assert torch.equal(language_model_loss(model, tokens), language_model_loss(model, (tokens,)))
    task = Task(lambda: gpt(8, 1, 8, 2, 5), tokens, tokens, language_model_loss)
    assert task.loss(task.model(), task.train.batch(torch.tensor([0, 2]))).item() > 1


# --- ready-made tasks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mlp", "cnn", "resnet18"])
def test_fashion_mnist(model: str) -> None:
    task = tasks.fashion_mnist(model, skew=0.25)
    assert len(task.train) == 10_000 and len(task.test) == 2_000
    assert task.skew == 0.25 and task.name == f"Fashion-MNIST subset, {model}"
    loss = task.loss(task.model(), task.train.batch(torch.arange(4)))
    loss.backward()
    assert 0.5 < loss.item() < 10


def test_fashion_mnist_learns() -> None:
    torch.manual_seed(0)
    task = tasks.fashion_mnist("cnn")
    model = task.model()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(100):
        task.loss(model, task.train.batch(torch.arange(64) + 64 * step)).backward()
        optimiser.step()
        optimiser.zero_grad()
    with torch.no_grad():
        assert task.accuracy is not None
        assert task.accuracy(model, task.test.batch(torch.arange(2_000))).item() > 0.65


def test_ready_made_tasks_refuse_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"model='cnm' is not known\. Did you mean 'cnn'"):
        tasks.fashion_mnist("cnm")
    with pytest.raises(ArgumentError, match="Allowed: 'resnet18', 'cnn'"):
        tasks.cifar10("mlp")
    with pytest.raises(ArgumentError, match="download=True goes with full=True"):
        tasks.fashion_mnist(download=True)
    with pytest.raises(DataError, match=r"FashionMNIST is not in .*download=True"):
        tasks.fashion_mnist(full=True, folder=tmp_path)
    with pytest.raises(DataError, match=r"CIFAR100 is not in .*download=True"):
        tasks.cifar100(folder=tmp_path)


def test_cifar_models_fit_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (torch.randn(8, 3, 32, 32), torch.arange(8))
    monkeypatch.setattr(tasks, "load_torchvision", lambda name, folder, download: (rows, rows))
    for task, classes in ((tasks.cifar10("cnn"), 10), (tasks.cifar100("cnn"), 100), (tasks.cifar100(), 100)):
        assert task.model()(rows[0][:2]).shape == (2, classes)


def test_registry_is_complete_and_typed() -> None:
    assert tasks.by_name == {
        "fashion-mnist": tasks.fashion_mnist,
        "cifar10": tasks.cifar10,
        "cifar100": tasks.cifar100,
        "quadratic": tasks.quadratic,
    }
    assert not any(
        p.kind is p.VAR_KEYWORD for f in tasks.by_name.values() for p in inspect.signature(f).parameters.values()
    )


def test_ready_made_tasks_can_be_sent_to_another_process() -> None:
    for task in (tasks.fashion_mnist("cnn"), quadratic()):
        task.train = task.train.batch(torch.arange(4))  # fewer bytes to pickle
        copied = pickle.loads(pickle.dumps(task))
        assert isinstance(copied.model(), nn.Module) and copied.loss is task.loss


# --- the quadratic ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eigenvalues", [tasks.EIGENVALUES, (3.0,), (0.0, 0.5, 2.0)])
def test_quadratic_has_the_curvature_it_says(eigenvalues: tuple[float, ...]) -> None:
    model = quadratic(eigenvalues).model()
    hessian = model.hessian
    assert isinstance(hessian, Tensor) and torch.equal(hessian, hessian.mT)
    torch.testing.assert_close(torch.linalg.eigvalsh(hessian), torch.tensor(sorted(eigenvalues)), atol=1e-6, rtol=1e-5)
    assert [name for name, _ in model.named_parameters()] == ["theta"]
    if len(eigenvalues) > 1:
        assert not torch.allclose(hessian, hessian.diag().diag(), atol=0.05)  # the basis is not the axes


def test_quadratic_gradient_is_exact() -> None:
    task = quadratic(noise=0.3, rows=64, seed=2)
    model, xi = task.model(), task.train.batch(torch.arange(10))
    task.loss(model, xi).backward()
    theta, hessian = model.get_parameter("theta"), model.get_buffer("hessian")
    torch.testing.assert_close(theta.grad, hessian @ theta.detach() + 0.3 * xi.mean(0))


def test_quadratic_noise_cancels_over_all_rows_and_in_the_test() -> None:
    task = quadratic(noise=5.0, rows=64)
    model = task.model()
    theta, hessian = model.get_parameter("theta").detach(), model.get_buffer("hessian")
    exact = 0.5 * theta @ hessian @ theta
    torch.testing.assert_close(task.loss(model, task.train.batch(torch.arange(64))), exact)
    torch.testing.assert_close(task.loss(model, task.test.batch(torch.arange(1))), exact)
    assert task.accuracy is None
    rows = task.train.batch(torch.arange(64))
    assert abs(rows.std().item() - 1) < 0.1


def test_quadratic_replays_by_seed_and_ignores_the_global_one() -> None:
    a, b, c = quadratic(seed=1), quadratic(seed=1), quadratic(seed=2)
    torch.manual_seed(9)
    thetas = [task.model().get_parameter("theta") for task in (a, a, b, c)]
    assert torch.equal(thetas[0], thetas[1]) and torch.equal(thetas[0], thetas[2])
    assert not torch.equal(thetas[0], thetas[3]) and thetas[0].data_ptr() != thetas[1].data_ptr()
    assert torch.equal(a.train.batch(torch.arange(9)), b.train.batch(torch.arange(9)))


@pytest.mark.parametrize(("lr", "shrinks"), [(1.9, True), (2.1, False)])
def test_quadratic_gradient_descent_is_stable_up_to_two_over_the_largest_eigenvalue(lr: float, shrinks: bool) -> None:
    model = quadratic().model()
    theta = model.get_parameter("theta")
    start = theta.detach().norm()
    for _ in range(200):
        (gradient,) = torch.autograd.grad(model(torch.zeros(1, 20)), theta)
        theta.data -= lr * gradient
    assert bool(theta.norm() < start) is shrinks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eigenvalues": ()}, "number of eigenvalues=0"),
        ({"eigenvalues": (1.0, -1.0)}, "eigenvalues=-1.0"),
        ({"noise": -1}, "noise=-1"),
        ({"rows": 0}, "rows=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_quadratic_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        quadratic(**arguments)


def test_everything_public_is_documented() -> None:
    assert all(getattr(tasks, name).__doc__ for name in tasks.__all__)
