"""What lesson 01's figure has to show, and the wrong answers that its checks have to tell apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Data = dict[str, Any]


def at(model: str, batch: int = 64, moment: int = 60) -> str:
    return f'StepDissector model="{model}" batch="{batch}" moment={moment}'


def backward_is_the_shorter_pass(data: Data) -> bool:
    """Also in the round in which it was longest; and counting operations says otherwise."""
    return data["beta_high"] < 1 < data["counted"] and data["ms"]["backward"] < data["ms"]["forward"]


def strided_is_beyond_max_pool(data: Data) -> bool:
    """The distance between the two networks' β is larger than both spreads together."""
    betas = dict(zip(["mlp", "pool", "cnn", "gpt"], data["all"]))
    (pool, pool_low, pool_high, _), (cnn, cnn_low, cnn_high, _) = betas["pool"], betas["cnn"]
    return cnn - pool > (pool_high - pool_low) + (cnn_high - cnn_low)


def the_rule_of_thumb_is_missed(data: Data) -> bool:
    """2 is outside the spread of all but at most one model."""
    return sum(not low <= 2 <= high for _, low, high, _ in data["all"]) >= 3


def memory_rises_then_falls_to_nothing(data: Data) -> bool:
    """The peak is where backward begins; from there on no byte comes, and none is left at the end."""
    sizes = data["live_bytes"]
    top = sizes.index(max(sizes))
    begins = min(start for start, _ in data["spans"]["backward"])
    return (
        sizes[: top + 1] == sorted(sizes[: top + 1])
        and sizes[top:] == sorted(sizes[top:], reverse=True)
        and sizes[-1] == 0
        and abs(data["peak_ms"] - begins) < 0.05 * data["end"]
    )


def nothing_is_live_in_the_update(data: Data) -> bool:
    return data["now_bytes"] == 0 and data["doing"][0] == "update"


def four_times_the_bytes(data: Data) -> bool:
    """Bytes are counted, not timed: 64 · (3 · 256 + 10) floats and one more at batch 64."""
    rows = data["batch"]
    return data["peak"] == 4 * rows * (3 * 256 + 10) + 4


FINDINGS: list[tuple[str, Callable[[Data], bool]]] = [
    (at("CNN, max-pool"), backward_is_the_shorter_pass),
    (at("CNN, strided"), strided_is_beyond_max_pool),
    (at("MLP"), the_rule_of_thumb_is_missed),
    *((at(model), memory_rises_then_falls_to_nothing) for model in ("MLP", "CNN, max-pool", "CNN, strided", "GPT")),
    (at("MLP", moment=100), nothing_is_live_in_the_update),
    (at("MLP", batch=16), four_times_the_bytes),
    (at("MLP", batch=256), four_times_the_bytes),
]


def planted(clear: bool = True, sign: float = 1, late: bool = False, rate: float = 1, how: str = "plain") -> Any:
    """A hand-written SGD with the faults that are asked for."""

    def train(model: Any, loss: Any, batches: Any, lr: float, momentum: float, weight_decay: float) -> None:
        velocity = [torch.zeros_like(p) for p in model.parameters()]
        for batch in batches:
            if clear:
                model.zero_grad()
            loss(model, batch).backward()
            with torch.no_grad():
                for p, v in zip(model.parameters(), velocity):
                    g = p.grad + sign * weight_decay * p * (how != "beside")
                    if how == "beside":
                        p.mul_(1 - lr * weight_decay)
                    old = v.clone()
                    v.mul_(0 if how == "none" else momentum).add_(g, alpha=1 - momentum if how == "damped" else 1)
                    step = g + momentum * v if how == "nesterov" else v
                    p.sub_(rate * lr * (old if late else step))

    return train


def rebinds(model: Any, loss: Any, batches: Any, lr: float, momentum: float, weight_decay: float) -> None:
    """A new tensor gets the name, the parameter stays."""
    for batch in batches:
        model.zero_grad()
        loss(model, batch).backward()
        for p in model.parameters():
            p = p - lr * p.grad


def one_batch(model: Any, loss: Any, batches: Any, *settings: float) -> None:
    planted()(model, loss, batches[:1], *settings)


MUTANTS: dict[str, dict[str, tuple[Any, str]]] = {
    "01.1": {
        "memory of the ReLU and of the layer after it is counted twice": (209_920, "same piece"),
        "the same, without the loss": (204_800, "same piece"),
        "a linear layer keeps its output": (215_040, "not in the table"),
        "the batch counts": (508_928, "the batch too"),
        "all the table's lines, each for itself": (611_328, "same piece"),
        "the weights count": (465_960, "the weights too"),
        "only the weights": (358_440, "the weights"),
        "the loss keeps nothing": (102_400, "last line"),
        "numbers, not bytes": (26_880, "4 bytes"),
        "one picture": (840, "whole batch"),
        "kilobytes": (107.5, "bytes are asked for"),
        "a guess": (150_000, "too many"),
    },
    "01.2": {
        "all three faults, as in the notebook": (planted(clear=False, sign=-1, late=True), "still zero"),
        "gradients add up": (planted(clear=False), "still held"),
        "decay pushes outwards": (planted(sign=-1), "away from zero"),
        "the weight moves before the velocity": (planted(late=True), "one step late"),
        "no momentum": (planted(how="none"), "no momentum"),
        "damped momentum": (planted(how="damped"), "damped"),
        "Nesterov's momentum": (planted(how="nesterov"), "Nesterov"),
        "no decay": (planted(sign=0), "no weight decay"),
        "decay past the velocity": (planted(how="beside"), "past the velocity"),
        "half the rate": (planted(rate=0.5), "0.50 times"),
        "uphill": (planted(rate=-1), "uphill"),
        "a new tensor instead of the parameter": (rebinds, "in place"),
        "one step, not one a batch": (one_batch, "1 of 3 batches"),
        "a path instead of a function": ([1.0], "no function"),
    },
    "01.3": {
        "the network of the figure": ((256, 3), "first layer"),
        "wide, because wide is large": ((2048, 4), "memory"),
        "shallow and as wide as memory allows": ((1500, 3), "first layer"),
        "the order turned round": ((19, 256), "hidden at most 200"),
        "deep without a look at memory": ((256, 40), "memory"),
        "far too large": ((100_000, 3), "too large"),
    },
}
