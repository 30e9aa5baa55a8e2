"""The performance figures: each is a ratio of two things timed alternately in one run, on one machine.

What one thread computes is timed by its processor time, so that other programs on the machine do not count; what
several threads do together is timed by the clock on the wall.  Before each figure both sides run once, untimed.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from .budget import Batch, Budget
from .clocks import RealClock, VirtualClock
from .costs import layer_costs
from .errors import choose, positive_int
from .evaluate import Evaluator
from .methods import SGD, LayUp, Method
from .models import cnn, gpt, mlp
from .observe import RealObserver, VirtualObserver
from .replica import trainable
from .result import machine
from .rules import SGD as SGDRule
from .rules import Constant
from .run import Run
from .tasks import Task, classification_loss, language_model_loss
from .threads import Clock, Program
from .trace import Trace

LR = 0.01
Timed = Callable[[], float]  # runs a piece of work and returns its seconds


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: what ``--only`` looks for.
        what: is compared with what, in words.
        median, spread: of the pairs' ratios; the spread is the middle half of them (the interquartile range).
        bound: what the median must keep.
        direction: "<=" or ">=".
    """

    name: str
    what: str
    median: float
    spread: float
    bound: float
    direction: str

    @property
    def met(self) -> bool:
        """Whether the median keeps its bound."""
        return self.median <= self.bound if self.direction == "<=" else self.median >= self.bound

    @classmethod
    def of(cls, name: str, what: str, values: list[float], bound: float, direction: str = "<=") -> Figure:
        """The figure that these measurements make."""
        low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (0.0, 0.0, 0.0)
        return cls(
            name, what, statistics.median(values), high - low, bound, choose("direction", direction, ("<=", ">="))
        )


def ratios(ours: Timed, theirs: Timed, pairs: int) -> list[float]:
    """ours / theirs, ``pairs`` times; who goes first changes from pair to pair."""
    ours(), theirs()
    found = []
    for pair in range(pairs):
        if pair % 2:
            second = theirs()
            first = ours()
        else:
            first = ours()
            second = theirs()
        found.append(first / second)
    return found


# -- runs of the library without evaluation ----------------------------------------------------------------------------
def task(model: str, width: int = 256) -> Task:
    """Random rows for the "mlp" (3 hidden layers), the "cnn" or the "gpt" (64 tokens a row)."""
    torch.manual_seed(0)
    if model == "gpt":
        tokens = (torch.randint(256, (256, 65)),)
        return Task(gpt, tokens, tokens, language_model_loss)
    rows = torch.randn(1024, 1, 28, 28), torch.randint(10, (1024,))
    return Task(partial(mlp, width) if model == "mlp" else cnn, rows, rows, classification_loss)


def make_run(task: Task, method: Method, samples: int, rows: int, clock: Clock, trace: bool = False) -> Run:
    """A run as `minilayup.engine.train` makes it, that takes no snapshots."""
    model = task.model()
    budget = Budget(samples, None, None, rows)
    names = [name for name, _, _ in trainable(model)]
    run = Run(task, method, model, clock, budget, SGDRule(lr=LR), Constant(), Trace(method.threads, names, on=trace))
    slow, note = [1.0] * method.threads, Evaluator(run, samples, on_the_fly=False).note
    if isinstance(clock, RealClock):
        run.observer = RealObserver(clock, run.trace, slow, note, run.written)
    else:
        costs = layer_costs("equal", task, model, None, "module", 1.0, 2.0)
        sources = [run.random(program % run.workers) for program in range(method.threads)]
        run.observer = VirtualObserver(clock, run.trace, slow, note, run.written, costs, 0.1, "batch", sources)
    return run


def go(run: Run, method: Method) -> float:
    """Let the method's programs run to their end; the seconds that took (real ones on both clocks)."""
    programs = method.programs(run)
    for index, program in enumerate(programs):
        program.index = program.seed = index
    began = time.perf_counter()
    run.clock.run(programs)
    return run.clock.ended if isinstance(run.clock, RealClock) else time.perf_counter() - began


def in_a_program(measure: Callable[[Clock], list[float]]) -> list[float]:
    """What ``measure`` finds inside the one program of a real clock, with one thread."""
    clock, found = RealClock(), []
    threads = torch.get_num_threads()
    try:
        clock.run([Program(0, lambda: found.extend(measure(clock)))])
    finally:
        torch.set_num_threads(threads)
    return found


def layer_wise(task: Task, batches: list[Batch], clock: Clock, trace: bool) -> Timed:
    """The loop of `minilayup.methods.SGD` with update="layer", over given batches."""
    run = make_run(task, SGD("layer"), len(batches), 1, clock, trace)
    view = run.view(run.replica(), run.write, "layer")

    def timed() -> float:
        start = time.thread_time()
        for batch in batches:
            loss = view.forward(batch)
            view.backward(loss)
        return time.thread_time() - start

    return timed


def plain(task: Task, batches: list[Batch]) -> Timed:
    """The loop everybody writes, with ``torch.optim.SGD``."""
    model: nn.Module = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def timed() -> float:
        start = time.thread_time()
        for batch in batches:
            optimizer.zero_grad()
            loss = task.loss(model, batch.data)
            loss.backward()
            optimizer.step()
        return time.thread_time() - start

    return timed


def batches_of(task: Task, rows: int, count: int) -> list[Batch]:
    """The first batches of a task's training rows."""
    at = [torch.arange(rows) + rows * k for k in range(count)]
    return [Batch(k, k * rows, task.train.batch(index % len(task.train))) for k, index in enumerate(at)]


# -- the figures: (pairs, tiny) -> Figure.  tiny: only to see that it works --------------------------------------------
SIZES = {"mlp": (64, 40, 1.00, 0.90), "cnn": (64, 25, 1.02, 0.95), "gpt": (8, 4, 1.02, 0.95)}  # rows, batches, bounds


def step(model: str, pairs: int, tiny: bool = False) -> Figure:
    """A layer-wise step against the plain loop."""
    rows, count, bound, _ = SIZES[model]
    made = task(model)
    batches = batches_of(made, rows, 1 if tiny else count)
    found = in_a_program(lambda clock: ratios(layer_wise(made, batches, clock, False), plain(made, batches), pairs))
    return Figure.of(f"step-{model}", "processor time: layer-wise step / loop with torch.optim.SGD", found, bound)


def layup(model: str, pairs: int, tiny: bool = False) -> Figure:
    """Two workers that gossip against two that train alone."""
    rows, count, _, bound = SIZES[model]
    made, batches = task(model), 2 if tiny else 8 * count

    def timed(probability: float) -> float:
        method = LayUp(2, probability=probability)
        return go(make_run(made, method, batches * rows, rows, RealClock()), method)

    default = LayUp(2).probability
    found = ratios(lambda: timed(0.0), lambda: timed(default), pairs)
    return Figure.of(f"layup-{model}", "samples/s, 2 threads: LayUp / the same without exchange", found, bound, ">=")


def trace(pairs: int, tiny: bool = False) -> Figure:
    """The trace on against off."""
    made = task("mlp")
    batches = batches_of(made, 64, 1 if tiny else 40)

    def measure(clock: Clock) -> list[float]:
        return ratios(layer_wise(made, batches, clock, True), layer_wise(made, batches, clock, False), pairs)

    return Figure.of("trace", "processor time of a layer-wise MLP step: trace on / off", in_a_program(measure), 1.03)


def seconds_per_event(workers: int, batches: int) -> float:
    """Real seconds that each layer event takes on the virtual clock, with its numerics: MLP of 4 layers, width 64."""
    made, method = task("mlp", 64), LayUp(workers)
    run = make_run(made, method, batches * 32, 32, VirtualClock())
    return go(run, method) / (run.updates * 2 * len(run.trace.layers))


def virtual_rate(pairs: int, tiny: bool = False) -> Figure:
    """Layer events a second on the virtual clock: the one absolute figure."""
    batches = 4 if tiny else 400
    found = [1 / seconds_per_event(4, batches) for _ in range(pairs)]
    return Figure.of(
        "virtual-rate", "layer events/s, 4 virtual workers (absolute: this machine's)", found, 10_000, ">="
    )


def virtual_scale(pairs: int, tiny: bool = False) -> Figure:
    """What an event costs among many workers against among four."""
    many, batches = (16, 16) if tiny else (1024, 2048)
    pairs = min(pairs, 5)  # a pair takes seconds
    found = ratios(lambda: seconds_per_event(many, batches), lambda: seconds_per_event(4, batches), pairs)
    return Figure.of("virtual-scale", f"time of a layer event: {many} virtual workers / 4", found, 3.0)


def imports(pairs: int, tiny: bool = False) -> Figure:
    """``import minilayup`` against ``import torch``, each in a fresh process."""

    def timed(module: str) -> float:
        code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
        found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return float(found.stdout)

    found = ratios(lambda: timed("minilayup"), lambda: timed("torch"), pairs)
    return Figure.of("import", "processor time: import minilayup / import torch", found, 1.10)


FIGURES: dict[str, Callable[[int, bool], Figure]] = {
    **{f"step-{model}": partial(step, model) for model in SIZES},
    **{f"layup-{model}": partial(layup, model) for model in SIZES},
    "trace": trace, "virtual-rate": virtual_rate, "virtual-scale": virtual_scale, "import": imports,
}  # fmt: skip


def run_all(
    pairs: int = 15, only: str | None = None, progress: Callable[[str], None] = lambda name: None, tiny: bool = False
) -> list[Figure]:
    """Measure all figures, or those whose name contains ``only``.

    Args:
        pairs: timed alternately for each figure (at most 5 where a pair takes seconds).
        progress: told each figure's name before it is measured.
        tiny: sizes that show only that everything works.

    Raises: `ArgumentError` when no name contains ``only``.
    """
    positive_int("pairs", pairs)
    names = [name for name in FIGURES if only is None or only in name] or [choose("only", only, FIGURES)]
    figures = []
    for name in names:
        progress(name)
        figures.append(FIGURES[name](pairs, tiny))
    return figures


def main_table(figures: list[Figure]) -> str:
    """The figures as lines of text."""
    lines = [f"{'figure':<14} {'median':>10} {'spread':>9}   {'bound':>9}  kept   what"]
    for f in figures:
        digits = 0 if f.bound >= 1000 else 3
        bound, kept = f"{f.direction} {f.bound:,.{0 if digits == 0 else 2}f}", "yes" if f.met else "NO"
        lines.append(
            f"{f.name:<14} {f.median:>10,.{digits}f} {f.spread:>9,.{digits}f}   {bound:>9}  {kept:<5}  {f.what}"
        )
    return "\n".join([*lines, "Median and interquartile range over pairs timed alternately in one run."])


def as_json(figures: list[Figure]) -> str:
    """The figures, and the machine they were measured on, as JSON."""
    rows: list[dict[str, Any]] = [{**asdict(figure), "met": figure.met} for figure in figures]
    return json.dumps({"figures": rows, "machine": machine()}, indent=1)
