"""One storage, many views: a `View` is a private module over a replica's storage.

It has leaves, ``.grad`` and hooks of its own and serves one batch in flight, so two backward passes never meet in one
``.grad``.  (One ``nn.Parameter`` shared by several threads whose hooks write it crashes the interpreter.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from .budget import Batch
from .data import split
from .hooks import Gradients, Grads
from .replica import Layer, Replica, trainable
from .threads import Program

if TYPE_CHECKING:
    from .observe import Observer


class View:
    """A module over a replica's storage; it takes one batch at a time forward, then backward.

    Args:
        replica: whose weights it reads.
        loss: (module, data) -> scalar tensor.
        on_layer: (view, layer, gradients), called when a layer's gradients are to be written.
        observer: told of each pass and, if it is ``by_layer``, of each layer's share; there time passes.
        update: "layer" or "block", see `minilayup.hooks.Gradients`.
        weights: "live": each leaf is an alias of the storage, the backward pass uses the newest weights (PD-ASGD).
            "stashed": each leaf is a copy made at `begin`, the backward pass uses the forward pass's (PipeDream).
            The two cannot differ where autograd keeps a copy of its own: under autocast, with weight normalisation.
        micro_batches: equal parts in which a batch is computed; the gradients of all parts are written together.
            `forward` runs the backward passes of all but the last part, which only accumulate.

    Attributes:
        read: the version of each layer that this batch's forward pass read; zeros where nothing is traced.
        value: the batch's loss.
    """

    def __init__(
        self,
        replica: Replica,
        loss: Callable[[nn.Module, Any], Tensor],
        on_layer: Callable[[View, Layer, Grads], None],
        observer: Observer,
        update: str = "layer",
        weights: str = "live",
        micro_batches: int = 1,
    ) -> None:
        self.replica, self.observer, self.micro_batches = replica, observer, micro_batches
        self.layers = replica.layers
        self._loss = loss
        self._stash = [layer.flat.clone() for layer in self.layers] if weights == "stashed" else None
        self.module, self.leaves = self._over_storage()
        self.batch: Batch | None = None
        self.program = Program(replica.worker, lambda: None)  # the one that works on this view; the observer sets it
        self.since = 0.0  # when what it works on began; the observer's
        self.value = 0.0
        self.read = [0] * len(self.layers)
        self._traced = observer.trace.on
        self._entered = [True] * len(self.layers)
        self._current: int | None = None  # the layer whose forward pass is being computed
        if observer.by_layer:
            for index, (_, module, _) in enumerate(trainable(self.module, replica.cut)):
                module.register_forward_pre_hook(self._reader(index))
        self._gradients = Gradients(
            self.leaves,
            [layer.name for layer in self.layers],
            (lambda index: observer.computed(self, "backward", index)) if observer.by_layer else None,
            lambda index, grads: on_layer(self, self.layers[index], grads),
            update,
        )

    def _over_storage(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """A deep copy of the module whose trainable parameters are new leaves over the storage (or the stash), and
        whose buffers and frozen parameters are the replica's own."""
        original = self.replica.module
        memo: dict[int, Any] = {id(t): t for t in (*original.parameters(), *original.buffers())}
        leaves = []
        for layer, (_, _, parameters) in zip(self.layers, trainable(original, self.replica.cut), strict=True):
            tensors = layer.tensors if self._stash is None else layer.over(self._stash[layer.index])
            # .data: a version counter of its own, so that others may write between our forward and our backward
            leaves.append([nn.Parameter(tensor.data) for tensor in tensors])
            memo.update((id(p), leaf) for p, leaf in zip(parameters, leaves[-1], strict=True))
        return copy.deepcopy(original, memo), leaves

    def begin(self, batch: Batch) -> None:
        """Take a new batch: stamp the version of every layer, stash the weights if asked to, forget the last batch."""
        self.batch = batch
        self._gradients.clear()
        if self._traced:
            self.read = [layer.version for layer in self.layers]
        if self.observer.by_layer:
            self._entered = [False] * len(self.layers)
            self._current = None
        if self._stash is not None:
            for layer in self.layers:
                self._stash[layer.index].copy_(layer.flat)

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch, with its graph: a scalar tensor."""
        self.begin(batch)
        parts = split(batch.data, self.micro_batches) if self.micro_batches > 1 else [batch.data]
        self.value = 0.0
        for part in parts[:-1]:
            loss = self._forward(part)
            self._gradients.accumulating = True
            self.observer.began(self, "backward")
            loss.backward()
            self._gradients.accumulating = False
            self._gradients.rewind()
        return self._forward(parts[-1])

    def _forward(self, data: Any) -> Tensor:
        self.observer.began(self, "forward")
        loss = self._loss(self.module, data)
        if self.micro_batches > 1:
            loss = loss / self.micro_batches
        self.value += loss.item()
        if self.observer.by_layer:
            self._leave()
            for index, entered in enumerate(self._entered):
                if not entered:  # parameters that are used without their module's forward()
                    self._entered[index] = True
                    self.observer.computed(self, "forward", index)
        self.observer.ended(self, "forward")
        return loss

    def backward(self, loss: Tensor) -> None:
        """Back-propagate; each layer is written on the way (or at the end)."""
        try:
            self.observer.began(self, "backward")
            loss.backward()
            self._gradients.finish()
        except BaseException:
            self._gradients.clear()
            raise
        self.observer.ended(self, "backward")

    def _reader(self, index: int) -> Callable[[nn.Module, Any], None]:
        layer = self.layers[index]

        def reads(module: nn.Module, inputs: Any) -> None:
            if self._entered[index]:
                return  # used twice, or recomputed in the backward pass: the first read counts
            self._leave()  # read first, then let time pass: the time of the layer before passes now
            self._entered[index] = True
            self._current = index
            if self._traced and self._stash is None:
                self.read[index] = layer.version

        return reads

    def _leave(self) -> None:
        if self._current is not None:
            current, self._current = self._current, None
            self.observer.computed(self, "forward", current)
