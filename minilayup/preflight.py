"""Before anything starts: one batch, once, on a copy of the model; whatever would go wrong later is said here."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from .errors import ArgumentError, choose, number, positive_int
from .tasks import Task


def check_type(what: str, given: object, wanted: Any, example: str) -> None:
    """Refuse what is of another type than ``wanted``; ``example`` says what to give."""
    if not isinstance(given, wanted):
        kind = f"the class {given.__name__} itself" if isinstance(given, type) else f"a {type(given).__name__}"
        raise ArgumentError(f"{what}={given!r} is {kind}; give {example}")


def check_schedule(schedule: Any) -> None:
    """Refuse what does not turn a number of samples into a factor on the learning rate."""
    check_type("schedule", schedule, Callable, "a function of the samples seen, such as rules.Cosine(60_000)")
    number("schedule(0)", schedule(0), 0)


def check_slow(slow: Mapping[Any, float], allowed: Set[int | str]) -> None:
    """Refuse to slow down what is neither a worker nor a group of programs, and factors below 1."""
    for key, factor in slow.items():
        number(f"slow[{key!r}]", factor, 1)
        if isinstance(key, str):
            choose("slow", key, sorted(name for name in allowed if isinstance(name, str)))
        elif isinstance(key, bool) or key not in allowed:
            workers = max(worker for worker in allowed if isinstance(worker, int))
            raise ArgumentError(f"slow={key!r} is not a worker; there are workers 0 to {workers}")


def check_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """How many (0, 1, …), or which, as a tuple of seeds."""
    if not isinstance(seeds, Sequence) or isinstance(seeds, str):
        return tuple(range(positive_int("seeds", seeds)))
    if not seeds:
        raise ArgumentError("seeds=[] is empty: give how many, or which")
    return tuple(positive_int("seeds", seed, at_least=0) for seed in seeds)


def check_devices(devices: Sequence[str] | None, virtual: bool) -> list[torch.device]:
    """The devices, if they are there and can be used (on the virtual clock: the CPU alone).

    Raises: `ArgumentError`.
    """
    places = []
    check_type("devices", devices, (str, list, tuple, type(None)), "a list of names, such as ['cpu']")
    for name in ["cpu"] if devices is None else [devices] if isinstance(devices, str) else devices:
        try:
            place = torch.device(name)
            torch.empty(1, device=place)
        except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise ArgumentError(f"devices: {name!r} cannot be used on this machine ({reason}); 'cpu' can") from None
        if virtual and place.type != "cpu":
            raise ArgumentError(
                f"devices: the virtual clock runs on CPU tensors, not on {name!r}; use engine='threads'"
            )
        if place.type == "meta":
            raise ArgumentError("devices: 'meta' tensors have no numbers to train; use 'cpu'")
        places.append(place)
    if len(set(places)) > 1:
        raise ArgumentError(f"devices={[str(p) for p in places]}: all workers share one device for now; give one")
    if not places:
        raise ArgumentError("devices=[] is empty: leave it out, or name at least one, such as 'cpu'")
    return places


def check_model(model: nn.Module) -> None:
    """Refuse models that cannot be trained layer by layer.

    Raises: `ArgumentError` with the reason and the way out.
    """
    if any(isinstance(p, UninitializedParameter) or is_lazy(p) for p in (*model.parameters(), *model.buffers())):
        raise ArgumentError("the model has lazy modules that are not yet initialised: run one batch through it first")
    if not any(p.requires_grad for p in model.parameters()):
        raise ArgumentError(
            "the model has no trainable parameters: every one has requires_grad=False, or there is none"
        )
    for name, module in model.named_modules():
        if getattr(module, "sparse", False):
            raise ArgumentError(f"'{name}' makes sparse gradients, which no rule here writes: use sparse=False")
        if any(type(hook).__name__ == "WeightNorm" for hook in module._forward_pre_hooks.values()):
            raise ArgumentError(
                f"'{name}' uses the old torch.nn.utils.weight_norm, whose weight is not a parameter: "
                "use torch.nn.utils.parametrizations.weight_norm"
            )
    if hasattr(model, "_orig_mod"):
        warnings.warn(
            "torch.compile of a whole model fires every gradient hook at the end of the backward pass, so nothing is "
            "written layer by layer; compile the model's blocks instead",
            stacklevel=3,
        )


def check_rows(task: Task) -> None:
    """Refuse training or test data with values that are not finite; a Dataset's rows are not read for it.

    Raises: `ArgumentError` with the first bad row.
    """
    for part, rows in (("train", task.train), ("test", task.test)):
        if not rows.is_dataset and has_bad_values(rows.source):
            row = next(i for i in range(len(rows)) if has_bad_values(rows.batch(torch.tensor([i]))))
            raise ArgumentError(f"{part}: the data has values that are not finite (NaN, infinity), first in row {row}")


def check_loss(task: Task, model: nn.Module, data: Any) -> Tensor:
    """Compute the loss of one batch on a copy of the model, and refuse what cannot be trained.

    Returns: the loss, with its graph.

    Raises: `ArgumentError` when the loss is no scalar tensor, is not finite, does not depend on the model, or depends
        on trainable parameters that the model does not own.
    """
    trial = copy.deepcopy(model).train()
    with torch.random.fork_rng(devices=[]):
        loss = task.loss(trial, data)
    if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.dim() != 0:
        shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ArgumentError(f"the loss must be a scalar tensor, not {shape}: loss(module, batch) -> loss.mean(), say")
    if not torch.isfinite(loss):
        bad = "the data has values that are not finite" if has_bad_values(data) else "the data is finite"
        raise ArgumentError(f"the loss of the first batch is {loss.item()}, before any training: {bad}")
    if not loss.requires_grad:
        raise ArgumentError("the loss does not depend on the model's trainable parameters")
    owned = {id(p) for p in trial.parameters()}
    strangers = [p for p in leaves(loss) if id(p) not in owned]
    if strangers:
        shapes = ", ".join(str(tuple(p.shape)) for p in strangers)
        raise ArgumentError(
            f"the loss has trainable parameters that the model does not own, of shape {shapes}: nobody would write "
            "them. Make them part of the model"
        )
    return loss


def leaves(loss: Tensor) -> list[Tensor]:
    """The leaf tensors whose gradients a backward pass would compute."""
    found, seen, todo = [], set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        todo += [following for following, _ in node.next_functions]
    return found


def has_bad_values(data: Any) -> bool:
    """Whether any floating-point tensor of a (nested) batch has a NaN or an infinity."""
    if isinstance(data, Tensor):
        # The sum is not finite if a value is not, and takes no memory; only then look at each value.
        return data.is_floating_point() and not math.isfinite(data.sum()) and not bool(torch.isfinite(data).all())
    if isinstance(data, Mapping):
        return any(has_bad_values(value) for value in data.values())
    return isinstance(data, (tuple, list)) and any(has_bad_values(value) for value in data)
