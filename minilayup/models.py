"""The models of the course: small enough to train in a notebook, and written out so that each layer can be seen."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .errors import ArgumentError, positive_int

__all__ = ["GPT", "Block", "CausalAttention", "cnn", "gpt", "mlp", "resnet18"]


def mlp(width: int = 256, hidden: int = 3, inputs: int = 784, classes: int = 10) -> nn.Sequential:
    """A multilayer perceptron: `hidden` layers of `width` ReLUs, then the logits. [B, ...] -> [B, classes].

    Each row is flattened to `inputs` numbers. `hidden=0` is softmax regression, which is convex.
    """
    positive_int("width", width), positive_int("hidden", hidden, at_least=0)
    positive_int("inputs", inputs), positive_int("classes", classes)
    layers: list[nn.Module] = [nn.Flatten()]
    for _ in range(hidden):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def cnn(classes: int = 10, channels: int = 1) -> nn.Sequential:
    """Three strided convolutions and a linear layer for small pictures, [B, channels, H, W] -> [B, classes].

    H and W from 25 to 32: both 28 and 32 shrink to 4. No max-pooling, because its forward pass is so slow on a CPU that
    backward would take 0.8 times as long as forward and not the 2 that theory takes for granted; here it is about 2.2
    (lesson 01 measures both). No BatchNorm, because its running statistics are not gradients: every way of exchanging
    weights would need a rule for them.
    """
    positive_int("classes", classes), positive_int("channels", channels)
    model = nn.Sequential(
        nn.Conv2d(channels, 16, kernel_size=5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, classes),
    )
    # Without normalisation torch's default start lets the signal fade from layer to layer, and plain SGD at the default
    # rate needs twice the epochs. This one keeps its size: He et al. 2015, arXiv 1502.01852.
    for layer in model:
        if isinstance(layer, nn.Conv2d) and layer.bias is not None:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return model


def resnet18(classes: int = 10, channels: int = 1) -> nn.Module:
    """torchvision's ResNet-18 with a 3x3 first convolution for small pictures, [B, channels, H, W] -> [B, classes].

    The original first layer (7x7, stride 2, then max-pooling) would throw 15 of 16 pixels of a 32x32 picture away.
    Source: He et al. 2015, arXiv 1512.03385; the small first layer is its section 4.2's.
    """
    from torchvision.models import resnet18 as original

    positive_int("classes", classes), positive_int("channels", channels)
    model: nn.Module = original(num_classes=classes)
    model.conv1 = nn.Conv2d(channels, 64, kernel_size=3, stride=1, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


class CausalAttention(nn.Module):
    """Multi-head self-attention in which a position sees itself and those before it. [B, T, width] -> the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, heads, T, width / heads]
        return self.out(y.transpose(1, 2).reshape(batch, time, width))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One decoder block, normalised before each half: attention, then a perceptron. [B, T, width] -> the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), CausalAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """A small decoder-only language model: int64 tokens [B, T] -> logits [B, T, vocabulary], T <= context.

    Source: Radford et al. 2019 (GPT-2), without dropout. `tied`: the output layer is the token embedding.
    """

    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, context: int, tied: bool) -> None:
        super().__init__()
        self.context = context
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        # GPT-2's start. torch's (standard deviation 1) would make a tied output layer's first logits huge.
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        time = tokens.shape[1]
        if time > self.context:
            raise ArgumentError(f"{time} tokens are too many: this model's context is {self.context}.")
        x = self.tokens(tokens) + self.positions(torch.arange(time, device=tokens.device))
        return self.head(self.norm(self.blocks(x)))  # type: ignore[no-any-return]


def gpt(
    vocabulary: int = 256, layers: int = 4, width: int = 128, heads: int = 4, context: int = 128, tied: bool = False
) -> GPT:
    """A `GPT`: int64 tokens [B, T] -> logits [B, T, vocabulary]. `width` must be a multiple of `heads`."""
    sizes: dict[str, Any] = {"vocabulary": vocabulary, "layers": layers, "width": width, "heads": heads}
    for name, size in {**sizes, "context": context}.items():
        positive_int(name, size)
    if width % heads:
        raise ArgumentError(f"width={width} is not allowed: it must be a multiple of heads={heads}.")
    return GPT(vocabulary, layers, width, heads, context, tied)
