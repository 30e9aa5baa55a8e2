"""The hook is where the method happens: a layer's gradients are written as soon as autograd has finished them.

``register_post_accumulate_grad_hook`` fires for each parameter, last layer first, bias before weight, in the thread
that called ``backward()`` (CPU).  `Gradients` counts: when the last parameter of a layer has its gradient, the layer is
written at once (``update="layer"``) or kept until the whole backward pass is done (``update="block"``).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Grads = list["Tensor | None"]  # one a parameter of the layer; None where the batch did not use it


class Gradients:
    """The gradients of one view, collected layer by layer and handed on when they are to be written.

    Args:
        leaves: the view's own parameters, layer by layer.
        names: the layers' names, for messages.
        computed: called with a layer's index when its gradients are there; None: nobody wants to know.
        write: called with a layer's index and its gradients when they are to be written.
        update: "layer" (at once) or "block" (after the backward pass, last layer first).
    """

    def __init__(
        self,
        leaves: list[list[nn.Parameter]],
        names: list[str],
        computed: Callable[[int], None] | None,
        write: Callable[[int, Grads], None],
        update: str = "layer",
    ) -> None:
        self._leaves, self._names, self._computed, self._write = leaves, names, computed, write
        self._at_once = update == "layer"
        self._missing = [len(own) for own in leaves]  # parameters of each layer without a gradient yet
        self._kept: dict[int, Grads] = {}
        self.accumulating = False  # True: another micro-batch follows, gradients stay in .grad
        for index, own in enumerate(leaves):
            for leaf in own:
                leaf.register_post_accumulate_grad_hook(self._hook(index))

    def _hook(self, index: int) -> Callable[[Tensor], None]:
        missing = self._missing

        def arrived(leaf: Tensor) -> None:
            missing[index] -= 1
            if missing[index] == 0:
                self._complete(index)
            elif missing[index] < 0:
                raise RuntimeError(
                    f"layer '{self._names[index]}' had its gradients completed twice in one backward pass. Activation "
                    "checkpointing must be called with use_reentrant=False, and backward() once for each forward pass."
                )

        return arrived

    def _complete(self, index: int) -> None:
        if self._computed is not None:
            self._computed(index)
        if self.accumulating:
            return
        own = self._leaves[index]
        grads: Grads = [leaf.grad for leaf in own]
        for leaf in own:
            leaf.grad = None
        if self._at_once:
            self._write(index, grads)
        else:
            self._kept[index] = grads

    def finish(self) -> None:
        """After a backward pass: write what is only partly there, and what was kept.  As in ``torch.optim``, a
        parameter without a gradient is left alone."""
        for index in reversed(range(len(self._leaves))):
            if self._missing[index] > 0 and any(leaf.grad is not None for leaf in self._leaves[index]):
                self._complete(index)
        for index in sorted(self._kept, reverse=True):
            self._write(index, self._kept.pop(index))

    def rewind(self) -> None:
        """Another micro-batch of the same batch begins: count anew, keep ``.grad``."""
        for index, own in enumerate(self._leaves):
            self._missing[index] = len(own)

    def clear(self) -> None:
        """Forget everything of the batch before, also one that ended in the middle with an exception."""
        self._kept.clear()
        self.accumulating = False
        self.rewind()
        for own in self._leaves:
            for leaf in own:
                leaf.grad = None
