"""Lesson 01: one measured step of SGD, layer by layer, and the bytes that its backward pass frees as it goes.

`measure_step` measures a step of any task.  Times are `minilayup.costs.measure`'s.  Live activations are counted in a
pass of their own, because counting takes time: see `live_activations`.
"""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import SubFigure
from torch import Tensor, nn

from .. import costs, rules
from ..course import stored
from ..data import Stream
from ..errors import positive_int
from ..replica import trainable
from ..table import Table
from ..tasks import Task
from . import picture
from .controls import Choice, Number
from .figure import Data, Figure, Prediction

PHASES = ("forward", "backward", "update")


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass
class Live:
    """The activations that autograd held during one pass forward and one backward.

    Attributes:
        marks: (layer, seconds) where each layer began in the forward pass; then (-1, …), the end of the forward pass;
            then where each layer's gradients were there.
        changes: (seconds, bytes live from then on).
    """

    marks: list[tuple[int, float]]
    changes: list[tuple[float, int]]

    @property
    def peak(self) -> int:
        """The most bytes that were live at once."""
        return max((size for _, size in self.changes), default=0)


class _Held:
    """Stands for a tensor in autograd's graph.  When autograd lets go of it, ``released`` is called."""

    def __init__(self, tensor: Tensor, released: Callable[[], None]) -> None:
        self.tensor, self.released = tensor, released

    def __del__(self) -> None:
        self.released()


def live_activations(task: Task, model: nn.Module, data: Any, layers: str | list[str] = "module") -> Live:
    """Count the bytes that autograd keeps for the backward pass, from the moment it takes them to when it lets go.

    Autograd hands each tensor that it saves to a hook of ours, keeps what the hook returns, and drops it as soon as the
    operation that needed it has been differentiated; what we return notices that it is dropped.  A piece of storage
    counts once however many tensors look at it, from the first that is saved to the last that is dropped.  What was
    there before the pass (weights, buffers, the batch) does not count; nor do gradients, and what an operation needs
    only while it runs.
    """
    trial = copy.deepcopy(model)
    before = {t.untyped_storage().data_ptr() for t in (*trial.parameters(), *trial.buffers(), *_tensors(data))}
    holders: Counter[int] = Counter()
    marks: list[tuple[int, float]] = []
    changes: list[tuple[float, int]] = []
    live = 0

    def changed(by: int) -> None:
        nonlocal live
        live += by
        changes.append((time.perf_counter(), live))

    def keep(tensor: Tensor) -> _Held:
        storage = tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        counts = place not in before

        def released() -> None:
            holders[place] -= 1
            if counts and holders[place] == 0:
                changed(-size)

        holders[place] += 1
        if counts and holders[place] == 1:
            changed(size)
        return _Held(tensor, released)

    for i, (_, module, own) in enumerate(trainable(trial, layers)):
        module.register_forward_pre_hook(lambda m, x, i=i: marks.append((i, time.perf_counter())))
        for p in own:
            p.register_post_accumulate_grad_hook(lambda p, i=i: marks.append((i, time.perf_counter())))
    with torch.random.fork_rng(devices=[]), torch.autograd.graph.saved_tensors_hooks(keep, lambda held: held.tensor):
        loss = task.loss(trial, data)
        marks.append((-1, time.perf_counter()))
        loss.backward()
    return Live(marks, changes)


def measure_step(
    task: Task,
    batch_size: int,
    model: str = "",
    layers: str | list[str] = "module",
    rounds: int = 10,
    repeats: int = 10,
) -> dict[str, Any]:
    """Measure one step of SGD on this machine, with as many threads as torch is set to: where its time and memory go.

    Args:
        model: what to call it in pictures; default: the task's name.
        layers: how the model is cut, see `minilayup.replica.trainable`.
        rounds: each takes a time for every layer, the fastest of ``repeats``.  The faster half of the rounds is kept,
            since what else the machine does only makes a step longer; returned are the round whose β is in the middle
            of these, and their lowest and highest β.

    Returns: "model", "batch", "threads", "layers" (names); "forward", "backward", "update": [start, end] of each
        layer's share in milliseconds; "beta", "beta_low", "beta_high": the time of backward over that of forward;
        "counted": the same for floating-point operations (see `counted_beta`); "live": "ms" and "bytes", the bytes
        live from each of these times on.
    """
    positive_int("rounds", rounds)
    trial = task.model()
    data = task.train.batch(Stream(task.train, batch_size, seed=0).rows(0))
    measured = sorted((costs.measure(task, trial, data, layers, repeats) for _ in range(rounds)), key=_seconds)
    kept = sorted(measured[: -(-rounds // 2)], key=_beta)
    middle, betas = kept[len(kept) // 2], [_beta(times) for times in kept]
    live = min((live_activations(task, trial, data, layers) for _ in range(3)), key=lambda run: run.marks[-1][1])
    update = _update_times(trial, layers, repeats)

    # One layer after the other, in the order in which the passes came to them.
    end = [i for i, _ in live.marks].index(-1)
    order = {
        "forward": list(dict(live.marks[:end])),
        "backward": list(dict(live.marks[end + 1 :])),
        "update": list(reversed(range(len(update)))),
    }
    spans: dict[str, list[list[float]]] = {}
    borders, clock = [0.0], 0.0  # on the measured step's clock
    for phase in PHASES:
        seconds = update if phase == "update" else middle[phase]
        spans[phase] = [[clock, clock] for _ in seconds]
        for i in order[phase]:
            spans[phase][i] = [_ms(clock), _ms(clock + seconds[i])]
            clock += seconds[i]
            borders.append(clock)

    # The counting pass ran slower: its times are carried over, layer by layer.
    last = dict(live.marks[end + 1 :])
    counted_at = [*dict(reversed(live.marks[:end])).values()][::-1]
    counted_at = [*counted_at, live.marks[end][1], *(last[i] for i in order["backward"])]
    times = np.interp([at for at, _ in live.changes], counted_at, borders[: len(counted_at)])
    return {
        "model": model or task.name,
        "batch": batch_size,
        "threads": torch.get_num_threads(),
        "layers": layer_names(trial, layers),
        **spans,
        "beta": round(_beta(middle), 3),
        "beta_low": round(betas[0], 3),
        "beta_high": round(betas[-1], 3),
        "counted": round(counted_beta(task, trial, data), 3),
        "live": _thinned([_ms(t) for t in times], [size for _, size in live.changes]),
    }


def counted_beta(task: Task, model: nn.Module, data: Any) -> float:
    """Floating-point operations of a backward pass over those of a forward pass: no clock, the same on each machine.

    Matrix products and convolutions are counted, nothing else; on a CPU not those inside of attention.
    """
    from torch.utils.flop_counter import FlopCounterMode  # here, because it imports triton

    trial = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), FlopCounterMode(display=False) as forward:
        loss = task.loss(trial, data)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    ratio: float = backward.get_total_flops() / max(1, forward.get_total_flops())
    return ratio


def layer_names(model: nn.Module, layers: str | list[str] = "module") -> list[str]:
    """What a layer's share of a pass holds: itself and the modules without parameters that follow it."""
    readers = {id(module): i for i, (_, module, _) in enumerate(trainable(model, layers))}
    blocks = layers if isinstance(layers, list) else []
    found: list[list[str]] = [[] for _ in readers]
    at = -1
    for name, module in model.named_modules():
        if any(name.startswith(block + ".") for block in blocks):
            continue
        kind = type(module).__name__.removesuffix("2d")
        if id(module) in readers:
            at = readers[id(module)]
            found[at] = [name if name in blocks or kind == "Embedding" else kind]
        elif at >= 0 and not list(module.children()) and not isinstance(module, (nn.Flatten, nn.Identity)):
            found[at].append(kind)
    return ["+".join(parts) for parts in found]


def _tensors(data: Any) -> list[Tensor]:
    if isinstance(data, Tensor):
        return [data]
    parts = data.values() if isinstance(data, dict) else data
    return [tensor for part in parts for tensor in _tensors(part)]


def _seconds(times: dict[str, list[float]]) -> float:
    return sum(times["forward"]) + sum(times["backward"])


def _beta(times: dict[str, list[float]]) -> float:
    return sum(times["backward"]) / sum(times["forward"])


def _ms(seconds: float) -> float:
    return round(1e3 * float(seconds), 4)


def _update_times(model: nn.Module, layers: str | list[str], repeats: int) -> list[float]:
    rule, found = rules.SGD(lr=1e-3), []
    for _, _, own in trainable(copy.deepcopy(model), layers):
        weights, grads = [p.detach() for p in own], [torch.zeros_like(p) for p in own]
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            rule.apply(weights, grads, [None] * len(own), rule.lr)
            best = min(best, time.perf_counter() - start)
        found.append(best)
    return found


def _thinned(ms: list[float], sizes: list[int]) -> dict[str, list[float]]:
    """Changes that happen within a 500th of the time of each other are one, except at the peak."""
    kept: dict[str, list[float]] = {"ms": [0.0], "bytes": [0]}
    for at, size in zip(ms, sizes):
        if at - kept["ms"][-1] < ms[-1] / 500 and kept["bytes"][-1] != max(sizes):
            kept["bytes"][-1] = size
        else:
            kept["ms"].append(at)
            kept["bytes"].append(size)
    return kept


# -- showing -----------------------------------------------------------------------------------------------------------


class StepDissector(Figure):
    """One measured step: the layers' shares of forward, backward and update, and the live activations below.

    Args:
        own: steps that you have measured with `measure_step`, shown beside the stored ones; the last one at first, and
            it is what the prediction asks for.
    """

    title = "One step of SGD, dissected"
    finding = "How long backward takes depends on the model: not always 2 times forward. It frees memory as it goes."
    size = (7.2, 5.6)

    def __init__(self, *own: dict[str, Any]) -> None:
        measured: list[dict[str, Any]] = stored("lesson01")["steps"]
        self._steps = [*own, *measured]  # one's own first: it stands for a stored one of the same name
        self._names: list[str] = list(dict.fromkeys(step["model"] for step in [*measured, *own]))
        batches = [str(size) for size in sorted({step["batch"] for step in self._steps})]
        first: dict[str, Any] = own[-1] if own else {"model": "CNN, strided", "batch": 64}
        about = first["model"] if own else "CNN, max-pool"
        net = f"“{about}” makes" if own else "A convolutional network with max-pooling makes"
        asked = f"{net} one step on a batch of {first['batch']}, on {_cores(first.get('threads', 1))}"
        super().__init__(
            {
                "model": Choice("Model", self._names, first["model"]),
                "batch": Choice("Batch", batches, str(first["batch"])),
                "moment": Number("Moment", 0, 100, 1, 60, "% of the step"),
            },
            Prediction(
                f"{asked}. How long does its backward pass take, in forward passes?",
                Number("Backward takes", 0.0, 4.0, 0.1, 2.0, "times forward"),
                {"model": about, "batch": str(first["batch"])},
                lambda data: round(data["beta"], 1),
            ),
        )

    def model(self, *, model: str, batch: str, moment: float) -> Data:
        """The step of this model whose batch is nearest to the one asked for, and what is going on at the moment."""
        of = [self._at(name, int(batch)) for name in self._names]
        step = of[self._names.index(model)]
        end = step["update"][0][1]
        now = moment / 100 * end
        phase, layer = next(
            (
                (phase, i)
                for phase in PHASES
                for i, (start, stop) in enumerate(step[phase])
                if start <= now <= stop and stop > start
            ),
            ("update", 0),
        )
        at = int(np.searchsorted(step["live"]["ms"], now, side="right")) - 1
        sizes = step["live"]["bytes"]
        peak = int(np.argmax(sizes))
        return {
            **{key: step[key] for key in ("model", "batch", "layers", "beta", "beta_low", "beta_high", "counted")},
            "spans": {phase: step[phase] for phase in PHASES},
            "ms": {phase: max(e for _, e in step[phase]) - min(s for s, _ in step[phase]) for phase in PHASES},
            "live_ms": step["live"]["ms"],
            "live_bytes": sizes,
            "peak": sizes[peak],
            "peak_ms": step["live"]["ms"][peak],
            "now": now,
            "now_bytes": sizes[at],
            "doing": [phase, f"{layer} ({step['layers'][layer]})"],
            "end": end,
            "all": [[other["beta"], other["beta_low"], other["beta_high"], other["counted"]] for other in of],
        }

    def _at(self, model: str, batch: int) -> dict[str, Any]:
        return min((s for s in self._steps if s["model"] == model), key=lambda s: abs(int(s["batch"]) - batch))

    def draw(self, canvas: SubFigure) -> None:
        """Bars above, live activations in the middle, all models' β below."""
        models = self._names
        grid = {"left": 0.27, "right": 0.97, "top": 0.94, "bottom": 0.08, "hspace": 0.72}
        top, middle, bottom = canvas.subplots(3, 1, height_ratios=[2.2, 1.2, 1.1], gridspec_kw=grid)
        self._axes = top, middle, bottom
        self._bars = {phase: picture.Bars(top, k, height=0.7) for k, phase in enumerate(PHASES)}
        self._totals = {phase: top.text(0, 0, "", ha="center", va="top") for phase in PHASES[:2]}
        self._update_words = top.text(1, 1.03, "", ha="right", va="bottom", transform=top.transAxes)
        top.tick_params(left=False, bottom=False, labelbottom=False)
        top.spines["bottom"].set_visible(False)
        middle.set(xlabel="milliseconds")
        middle.locator_params(nbins=5)
        middle.locator_params("y", nbins=3)
        self._live = picture.line(middle, 3, marker="", linestyle="-", drawstyle="steps-post", linewidth=2)
        self._peak = middle.plot([], [], "v", color=picture.COLOURS[1], markersize=8)[0]
        self._peak_words = middle.text(0, 0, "", va="center")
        self._cursors = [axes.axvline(0, color=picture.INK, linestyle=":", linewidth=1.4) for axes in (top, middle)]
        self._now = middle.plot([], [], "o", color=picture.INK, markersize=6)[0]
        bottom.axvline(2, color=picture.COLOURS[4], linestyle="--")
        bottom.set(ylim=(len(models) - 0.5, -0.5), title="β = backward ÷ forward:  ● measured  ◇ counted operations")
        bottom.set_yticks(range(len(models)), map(_short, models))
        self._spread = bottom.plot([], [], "-", color=picture.COLOURS[0], linewidth=3)[0]
        self._counted, self._others, self._chosen = (
            bottom.plot([], [], marker, color=picture.COLOURS[k], markersize=size, markerfacecolor=fill)[0]
            for marker, k, size, fill in (("D", 3, 6, "none"), ("o", 0, 6, None), ("o", 0, 10, None))
        )
        self._values = [bottom.text(0, k, "", va="center") for k in range(len(models))]

    def update(self, data: Data) -> None:
        """Move the artists."""
        top, middle, bottom = self._axes
        rows, end = len(data["layers"]), data["end"]
        for phase in PHASES:
            spans = data["spans"][phase]
            begins, ends = [s for s, _ in spans], [e for _, e in spans]
            self._bars[phase].set(range(rows + 1), [*begins, min(begins)], [*ends, max(ends)])  # the last: all together
            if phase in self._totals:
                at = (min(begins) + max(ends)) / 2
                self._totals[phase].set(position=(at, rows + 0.5), text=f"{phase} {data['ms'][phase]:.3g} ms")
        self._update_words.set_text(f"update {data['ms']['update']:.2g} ms")
        names = [_short(f"{i} · {name}") for i, name in enumerate(data["layers"])]
        top.set(xlim=(0, end), ylim=(rows + 0.5, -0.5))
        top.set_yticks(range(rows + 1), [*names, "all layers"])
        top.set_title(f"Backward takes {data['beta']:.2g} × as long as forward")

        unit, factor = ("MB", 1e6) if data["peak"] >= 1e6 else ("kB", 1e3)
        sizes = [size / factor for size in data["live_bytes"]]
        peak, now = data["peak"] / factor, data["now_bytes"] / factor
        self._live.set_data([*data["live_ms"], end], [*sizes, sizes[-1]])
        self._peak.set_data([data["peak_ms"]], [peak * 1.1])
        self._peak_words.set(position=(data["peak_ms"] + 0.02 * end, peak * 1.15), text=f"peak {peak:.3g} {unit}")
        self._now.set_data([data["now"]], [now])
        middle.set(xlim=(0, end), ylim=(0, 1.3 * peak), ylabel=unit)
        middle.set_title(f"Live activations: {now:.3g} {unit} at the dotted line")
        for cursor in self._cursors:
            cursor.set_xdata([data["now"], data["now"]])

        chosen = self._names.index(data["model"])
        for k, (beta, low, high, counted) in enumerate(data["all"]):
            right = counted < beta  # the side on which the diamond is not
            self._values[k].set(
                position=(high + 0.1 if right else low - 0.1, k), text=f"{beta:.2g}", ha="left" if right else "right",
                weight="bold" if k == chosen else "normal",
            )  # fmt: skip
        ranges = [(x, k) for k, row in enumerate(data["all"]) for x in (row[1], row[2], math.nan)]
        self._spread.set_data(*zip(*ranges))
        self._counted.set_data([row[3] for row in data["all"]], range(len(data["all"])))
        self._others.set_data([row[0] for row in data["all"]], range(len(data["all"])))
        self._chosen.set_data([data["all"][chosen][0]], [chosen])
        most = max(3.5, 1.2 * max(row[2] for row in data["all"]))
        ticks = range(0, int(most) + 1, 1 if most < 5 else 2)
        bottom.set_xlim(0, most)
        bottom.set_xticks(ticks, ["2, the rule of thumb" if tick == 2 else f"{tick}" for tick in ticks])

    def read(self, data: Data) -> str:
        """β, how sure it is, the peak, and the moment."""
        (phase, layer), ms = data["doing"], data["ms"]
        others = "; ".join(f"{n} {row[0]:.2g}" for n, row in zip(self._names, data["all"]) if n != data["model"])
        doing = phase if phase == "update" else f"{phase} pass"
        return (
            f"{data['model']}, batch {data['batch']}: forward takes {ms['forward']:.3g} ms and backward "
            f"{ms['backward']:.3g} ms, {data['beta']:.2f} times as long ({data['beta_low']:.2f} to "
            f"{data['beta_high']:.2f} over the rounds); counting operations says {data['counted']:.2f}. Live "
            f"activations peak at {_bytes(data['peak'])}, where backward begins; at {self.settings['moment']:g} % of "
            f"the step, in the {doing} of layer {layer}, they are {_bytes(data['now_bytes'])}. Backward over forward "
            f"of the others: {others}."
        )

    def table(self) -> Table:
        """Milliseconds of each layer."""
        data = self.data()
        rows = [
            [name, *(f"{stop - start:.3f}" for start, stop in shares)]
            for name, *shares in zip(data["layers"], *(data["spans"][phase] for phase in PHASES))
        ]
        rows.append(["all", *(f"{data['ms'][phase]:.3f}" for phase in PHASES)])
        title = f"One step of {data['model']}, batch {data['batch']}, milliseconds; β = {data['beta']:.2f}"
        return Table(title, ["layer", *PHASES], rows)


def _short(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:21]}…"


def _cores(threads: int) -> str:
    return "one core" if threads == 1 else f"{threads} cores"


def _bytes(size: float) -> str:
    return f"{size / 1e6:.3g} MB" if size >= 1e6 else f"{size / 1e3:.3g} kB"
