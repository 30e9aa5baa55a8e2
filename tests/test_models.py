"""The models: shapes, what depends on what, and that each of them learns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minilayup.errors import ArgumentError
from minilayup.models import GPT, CausalAttention, cnn, gpt, mlp, resnet18

ROOT = Path(__file__).parents[1]


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("make", "shape", "classes"),
    [
        (lambda: mlp(32), (3, 1, 28, 28), 10),
        (lambda: mlp(8, hidden=0, inputs=12, classes=4), (3, 12), 4),
        (cnn, (3, 1, 28, 28), 10),
        (lambda: cnn(classes=100, channels=3), (3, 3, 32, 32), 100),
        (resnet18, (2, 1, 28, 28), 10),
        (lambda: resnet18(classes=100, channels=3), (2, 3, 32, 32), 100),
    ],
)
def test_pictures_become_logits(make: Callable[[], nn.Module], shape: tuple[int, ...], classes: int) -> None:
    logits = make()(torch.randn(shape))
    assert logits.shape == (shape[0], classes) and logits.isfinite().all()


def test_mlp_has_the_layers_it_says() -> None:
    model = mlp(width=16, hidden=2, inputs=9, classes=5)
    assert [tuple(layer.weight.shape) for layer in model if isinstance(layer, nn.Linear)] == [
        (16, 9),
        (16, 16),
        (5, 16),
    ]
    assert sum(isinstance(layer, nn.ReLU) for layer in model) == 2
    assert parameters(mlp(hidden=0)) == 7850


def test_cnn_is_small_and_has_no_norm_and_no_pooling() -> None:
    kinds = {type(layer) for layer in cnn().modules()}
    assert kinds == {nn.Sequential, nn.Conv2d, nn.ReLU, nn.Flatten, nn.Linear}
    assert parameters(cnn()) < 50_000


def test_cnn_starts_with_a_signal_that_neither_fades_nor_grows() -> None:
    torch.manual_seed(0)
    model, x = cnn(), torch.randn(64, 1, 28, 28)
    sizes = []
    for layer in model[:6]:
        x = layer(x)
        sizes += [x.square().mean().item()] if isinstance(layer, nn.Conv2d) else []
    assert all(0.5 < size < 4 for size in sizes)


def test_resnet18_keeps_small_pictures_large() -> None:
    model = resnet18(channels=3)
    assert isinstance(model.maxpool, nn.Identity)
    assert model.conv1(torch.randn(1, 3, 32, 32)).shape == (1, 64, 32, 32)  # type: ignore[operator]
    assert parameters(model) == 11_173_962  # as He et al.'s, with a 3x3 first layer and 10 classes


@pytest.fixture
def small() -> GPT:
    torch.manual_seed(0)
    return gpt(vocabulary=11, layers=2, width=16, heads=2, context=8)


def test_gpt_gives_logits_for_every_position(small: GPT) -> None:
    assert small(torch.randint(11, (3, 8))).shape == (3, 8, 11)
    assert small(torch.randint(11, (3, 1))).shape == (3, 1, 11)
    with pytest.raises(ArgumentError, match="9 tokens are too many: this model's context is 8"):
        small(torch.randint(11, (3, 9)))


def test_gpt_sees_the_past_only(small: GPT) -> None:
    tokens = torch.randint(11, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 11
    before, after = small(tokens), small(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:], atol=1e-4)


def test_gpt_attention_is_the_textbook_formula(small: GPT) -> None:
    attention, x = small.get_submodule("blocks.0.attention"), torch.randn(2, 5, 16)
    assert isinstance(attention, CausalAttention)
    q, k, v = attention.qkv(x).split(16, dim=-1)
    mask = torch.full((5, 5), -torch.inf).triu(1)
    heads = [slice(0, 8), slice(8, 16)]
    y = [torch.softmax(q[..., h] @ k[..., h].mT / 8**0.5 + mask, -1) @ v[..., h] for h in heads]
    torch.testing.assert_close(attention(x), attention.out(torch.cat(y, -1)))


def test_gpt_knows_where_a_token_stands(small: GPT) -> None:
    logits = small(torch.zeros(1, 2, dtype=torch.long))
    assert not torch.allclose(logits[0, 0], logits[0, 1], atol=1e-4)


def test_gpt_tied_shares_one_matrix() -> None:
    tied, untied = gpt(vocabulary=50, tied=True), gpt(vocabulary=50)
    assert tied.head.weight is tied.tokens.weight
    assert parameters(untied) - parameters(tied) == 50 * 128
    loss = F.cross_entropy(tied(torch.randint(50, (2, 9))).flatten(0, 1), torch.randint(50, (18,)))
    assert abs(loss.item() - torch.log(torch.tensor(50.0)).item()) < 0.5  # it starts near the uniform guess


@pytest.mark.parametrize("tied", [False, True])
def test_gpt_learns_to_count(tied: bool) -> None:
    torch.manual_seed(0)
    model = gpt(vocabulary=8, layers=1, width=32, heads=2, context=8, tied=tied)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        tokens = (torch.randint(8, (16, 1)) + torch.arange(8)) % 8
        loss: Tensor = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mlp(width=0), "width=0"),
        (lambda: mlp(hidden=-1), "hidden=-1 .* at least 0"),
        (lambda: mlp(inputs=True), "inputs=True"),
        (lambda: cnn(classes=2.5), "classes=2.5"),  # type: ignore[arg-type]
        (lambda: resnet18(channels=0), "channels=0"),
        (lambda: gpt(layers=0), "layers=0"),
        (lambda: gpt(width=130, heads=4), "width=130 .* multiple of heads=4"),
    ],
)
def test_bad_sizes_are_refused(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_importing_models_data_and_tasks_stays_light() -> None:
    code = (
        "import sys, minilayup.models, minilayup.data, minilayup.tasks;"
        "print([m for m in ('torchvision', 'matplotlib', 'networkx') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"
