"""The storage: a `Replica` is the weights of one model, layer by layer.  Nothing in it requires grad.

Programs never compute on it directly; each batch in flight has a `minilayup.view.View` over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .errors import ArgumentError, choose

ALIGNMENT = 64  # bytes: where torch puts a tensor of its own; products can round differently elsewhere


class Layer:
    """The trainable parameters that are written together, as tensors over one flat piece of storage.

    Attributes:
        index: place in the replica, input side first.
        name: of the module (or block, or parameter) whose parameters these are.
        flat: 1-D storage of all parameters (padded with zeros to the alignment); a merge is one operation on it.
        tensors: the parameters, in the model's shapes, over ``flat``.
        state: the update rule's own (momentum, …).
        writes: how often each writer has written this layer; each counter has one writer, so none is lost.
        steps: running sum of this worker's own steps, kept only for exchange rules that send steps.
    """

    def __init__(
        self, index: int, name: str, parameters: list[nn.Parameter], writers: int, device: torch.device
    ) -> None:
        if len({p.dtype for p in parameters}) > 1:
            raise ArgumentError(
                f"layer '{name}' mixes {sorted(str(p.dtype) for p in parameters)}: use one dtype a layer"
            )
        self.index, self.name = index, name
        step = ALIGNMENT // parameters[0].element_size()
        starts = [0]
        for p in parameters:
            starts.append(starts[-1] + -(-p.numel() // step) * step)
        self.flat = torch.zeros(starts[-1], dtype=parameters[0].dtype, device=device)
        self.shapes = [(p.shape, p.stride() if is_dense(p) else p.contiguous().stride()) for p in parameters]
        self._starts = starts
        self.tensors = self.over(self.flat)
        for tensor, p in zip(self.tensors, parameters, strict=True):
            tensor.copy_(p.detach())
        self.state: Any = None
        self.writes = [0] * writers
        self.steps: Tensor | None = None

    def over(self, flat: Tensor) -> list[Tensor]:
        """The parameters' shapes over another piece of storage laid out like ``flat``."""
        return [flat.as_strided(shape, stride, start) for (shape, stride), start in zip(self.shapes, self._starts)]

    @property
    def version(self) -> int:
        """Writes this layer has taken, merges from peers included."""
        return sum(self.writes)


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their storage without holes or overlaps (channels-last weights do)."""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def trainable(
    model: nn.Module, layers: str | list[str] = "module"
) -> Iterator[tuple[str, nn.Module, list[nn.Parameter]]]:
    """Cut a model into layers, input side first: (name, module that reads it, its parameters).

    Args:
        layers: "module": one module's own trainable parameters; "parameter": each one alone; or names of blocks
            (modules), whose parameters form one layer each, everything else by module.  A tied parameter counts once.

    Raises: `ArgumentError` for a block that the model does not have.
    """
    modules = dict(model.named_modules())
    blocks: list[str] = []
    if isinstance(layers, str):
        choose("layers", layers, ("module", "parameter"))
    elif isinstance(layers, (list, tuple)):
        blocks = [choose("layers", block, filter(None, modules)) for block in layers]
    else:
        raise ArgumentError(f"layers={layers!r} is not allowed: give 'module', 'parameter' or a list of blocks' names.")
    seen: set[int] = set()
    inside: tuple[str, ...] = ()
    for name, module in modules.items():
        if inside and name.startswith(inside):
            continue
        is_block = name in blocks
        if is_block:
            inside += (name + ".",)
        own = [(n, p) for n, p in module.named_parameters(recurse=is_block) if p.requires_grad and id(p) not in seen]
        seen |= {id(p) for _, p in own}
        if layers == "parameter":
            yield from ((f"{name}.{n}".lstrip("."), module, [p]) for n, p in own)
        elif own:
            yield name or "(root)", module, [p for _, p in own]


class Replica:
    """The weights of one worker (or the one replica that all workers share).

    Args:
        model: a fresh model; it becomes the replica's own, its parameters are laid over the layers' storage.
        worker: whose replica this is.
        writers: how many programs may write to it.
        layers: how it is cut, see `trainable`.
    """

    def __init__(
        self,
        model: nn.Module,
        worker: int = 0,
        writers: int = 1,
        layers: str | list[str] = "module",
        device: str | torch.device = "cpu",
    ) -> None:
        self.module, self.worker, self.cut = model.to(device), worker, layers
        self.layers: list[Layer] = []
        self.batches = 0  # batches written by this replica's own worker: its rate
        for index, (name, _, parameters) in enumerate(trainable(model, layers)):
            layer = Layer(index, name, parameters, writers, torch.device(device))
            for parameter, tensor in zip(parameters, layer.tensors, strict=True):
                parameter.data = tensor
            self.layers.append(layer)

    def buffers(self) -> list[Tensor]:
        """The model's buffers (BatchNorm statistics, …), shared by all views of this replica."""
        return list(self.module.buffers())
