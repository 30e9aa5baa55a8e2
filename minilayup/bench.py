"""The performance figures: each is a ratio of two things timed alternately in one run, on one machine.

What one thread computes is timed by its processor time, so that other programs on the machine do not count; what
several threads do together is timed by the clock on the wall.  Before each figure both sides run once, untimed.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from . import rules
from .budget import Batch, Budget
from .clocks import RealClock, VirtualClock
from .course.lesson import LESSONS
from .errors import choose, positive_int
from .evaluate import Evaluator
from .methods import SGD, LayUp, Method
from .models import cnn, gpt, mlp
from .observe import RealObserver, VirtualObserver
from .replica import trainable
from .result import machine
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
        median, spread: of the pairs' ratios; the spread is their interquartile range.
        bound, direction: what the median must keep, "<=" or ">=" it.
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
        low, median, high = statistics.quantiles(values * 2 if len(values) == 1 else values, n=4, method="inclusive")
        return cls(name, what, median, high - low, bound, choose("direction", direction, ("<=", ">=")))


def ratios(ours: Timed, theirs: Timed, pairs: int) -> list[float]:
    """ours / theirs, ``pairs`` times; who goes first changes from pair to pair."""
    ours(), theirs()
    timed = [{side: side() for side in ((ours, theirs), (theirs, ours))[pair % 2]} for pair in range(pairs)]
    return [seconds[ours] / seconds[theirs] for seconds in timed]


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
    events = Trace(method.threads, [name for name, *_ in trainable(model)], on=trace)
    run = Run(task, method, model, clock, Budget(samples, None, None, rows), rules.SGD(lr=LR), rules.Constant(), events)
    around = clock, events, [1.0] * method.threads, Evaluator(run, samples, on_the_fly=False).note, run.written
    if isinstance(clock, RealClock):
        run.observer = RealObserver(*around)
    else:
        costs = {"forward": [1.0] * len(events.layers), "backward": [2.0] * len(events.layers)}
        sources = [random.Random(program) for program in range(method.threads)]
        run.observer = VirtualObserver(*around, costs, 0.1, "batch", sources)
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
    clock, found = RealClock(), list[float]()
    clock.run([Program(0, lambda: found.extend(measure(clock)))])
    return found


def thread_seconds(step: Callable[[Batch], None], batches: list[Batch]) -> float:
    """Processor time of the calling thread for a step on each batch."""
    start = time.thread_time()
    for batch in batches:
        step(batch)
    return time.thread_time() - start


def layer_wise(task: Task, batches: list[Batch], clock: Clock, trace: bool) -> Timed:
    """The loop of `minilayup.methods.SGD` with update="layer", over given batches."""
    run = make_run(task, SGD("layer"), len(batches), 1, clock, trace)
    view = run.view(run.replica(), run.write, "layer")

    def step(batch: Batch) -> None:
        loss = view.forward(batch)
        view.backward(loss)

    return partial(thread_seconds, step, batches)


def plain(task: Task, batches: list[Batch]) -> Timed:
    """The loop everybody writes, with ``torch.optim.SGD``."""
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        loss = task.loss(model, batch.data)
        loss.backward()
        optimizer.step()

    return partial(thread_seconds, step, batches)


def batches_of(task: Task, rows: int, count: int) -> list[Batch]:
    """The first batches of a task's training rows, from the start again when they end."""
    at = torch.arange(count * rows) % len(task.train)
    return [Batch(k, k * rows, task.train.batch(own)) for k, own in enumerate(at.split(rows))]


# -- the figures: (pairs, tiny) -> Figure.  tiny: only to see that it works --------------------------------------------
SIZES = {"mlp": (64, 40, 1.00, 0.90), "cnn": (64, 25, 1.02, 0.95), "gpt": (8, 4, 1.02, 0.95)}  # rows, batches, bounds


def step(model: str, pairs: int, tiny: bool = False) -> Figure:
    """A layer-wise step against the plain loop."""
    rows, count, bound, _ = SIZES[model]
    batches = batches_of(made := task(model), rows, 1 if tiny else count)
    found = in_a_program(lambda clock: ratios(layer_wise(made, batches, clock, False), plain(made, batches), pairs))
    return Figure.of(f"step-{model}", "processor time: layer-wise step / loop with torch.optim.SGD", found, bound)


def layup(model: str, pairs: int, tiny: bool = False) -> Figure:
    """Two workers that gossip against two that train alone."""
    rows, count, _, bound = SIZES[model]
    made, batches = task(model), 2 if tiny else 8 * count

    def seconds(method: Method) -> float:
        return go(make_run(made, method, batches * rows, rows, RealClock()), method)

    found = ratios(partial(seconds, LayUp(2, probability=0.0)), partial(seconds, LayUp(2)), pairs)
    return Figure.of(f"layup-{model}", "samples/s, 2 threads: LayUp / the same without exchange", found, bound, ">=")


def trace(pairs: int, tiny: bool = False) -> Figure:
    """The trace on against off."""
    made = task("mlp")
    side = partial(layer_wise, made, batches_of(made, 64, 1 if tiny else 40))
    found = in_a_program(lambda clock: ratios(side(clock, True), side(clock, False), pairs))
    return Figure.of("trace", "processor time of a layer-wise MLP step: trace on / off", found, 1.03)


def seconds_per_event(workers: int, batches: int) -> float:
    """Real seconds that each layer event takes on the virtual clock, numerics included: MLP of 4 layers, width 64."""
    made, method = task("mlp", 64), LayUp(workers)
    run = make_run(made, method, batches * 32, 32, VirtualClock())
    return go(run, method) / (run.updates * 2 * len(run.trace.layers))


def virtual_rate(pairs: int, tiny: bool = False) -> Figure:
    """Layer events a second on the virtual clock: the one absolute figure."""
    batches = 4 if tiny else 400
    found = [1 / seconds_per_event(4, batches) for _ in range(pairs + 1)][1:]
    return Figure.of("virtual-rate", "layer events/s, 4 virtual workers (absolute: of this machine)", found, 1e4, ">=")


def virtual_scale(pairs: int, tiny: bool = False) -> Figure:
    """What an event costs among many workers against among four."""
    many, batches = (16, 16) if tiny else (1024, 2048)
    ours, theirs = partial(seconds_per_event, many, batches), partial(seconds_per_event, 4, batches)
    found = ratios(ours, theirs, min(pairs, 3))  # a pair takes many seconds
    return Figure.of("virtual-scale", f"time of a layer event: {many} virtual workers / 4", found, 3.0)


def imports(pairs: int, tiny: bool = False) -> Figure:
    """``import minilayup`` against ``import torch``, each in a fresh process."""

    def seconds(module: str) -> float:
        code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
        return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)

    found = ratios(partial(seconds, "minilayup"), partial(seconds, "torch"), pairs)
    return Figure.of("import", "processor time: import minilayup / import torch", found, 1.10)


def lesson_figure(lesson: str, pairs: int, tiny: bool = False) -> Figure:
    """From a control to the picture, everything computed anew: absolute, in ms, by processor time."""
    from .figures import FIGURES as shown_in  # here, because only this figure needs matplotlib

    make: Callable[[], Any] = shown_in[lesson]  # each has its own arguments, all optional
    shown, found = make(), list[float]()
    name, control = next(iter(shown.controls.items()))
    for _ in range(1 if tiny else max(1, pairs // 5)):
        for value in control.samples[: 1 if tiny else None]:
            shown.forget()
            start = time.process_time()
            shown.set(**{name: value})
            shown.svg()
            found.append(1e3 * (time.process_time() - start))
    what = f"ms from control to picture, {type(shown).__name__}{', a virtual run redone' * shown.trains} (absolute)"
    return Figure.of(f"picture-{lesson}", what, found, 500.0 if shown.trains else 60.0)


FIGURES: dict[str, Callable[[int, bool], Figure]] = {
    **{f"step-{model}": partial(step, model) for model in SIZES},
    **{f"layup-{model}": partial(layup, model) for model in SIZES},
    "trace": trace, "virtual-rate": virtual_rate, "virtual-scale": virtual_scale, "import": imports,
    **{f"picture-{lesson}": partial(lesson_figure, lesson) for lesson in LESSONS},
}  # fmt: skip


def run_all(
    pairs: int = 15, only: str | None = None, progress: Callable[[str], None] = lambda name: None, tiny: bool = False
) -> list[Figure]:
    """Measure all figures, or those whose name contains ``only``.

    ``progress`` is told each figure's name before it is measured; ``tiny`` sizes show only that everything works.
    Raises: `ArgumentError` when no name contains ``only``.
    """
    figures = []
    positive_int("pairs", pairs)
    for name in [name for name in FIGURES if only is None or only in name] or [choose("only", only, FIGURES)]:
        progress(name)
        figures.append(FIGURES[name](pairs, tiny))
    return figures


def main_table(figures: list[Figure]) -> str:
    """The figures as lines of text."""
    lines = [f"{'figure':<14} {'median':>9} {'spread':>9} {'bound':>11}  kept  what"]
    for f in figures:
        median, spread, bound = (f"{x:,.0f}" if f.bound >= 1000 else f"{x:.3f}" for x in (f.median, f.spread, f.bound))
        bound, kept = f"{f.direction} {bound}", "yes" if f.met else "NO"
        lines.append(f"{f.name:<14} {median:>9} {spread:>9} {bound:>11}  {kept:<4}  {f.what}")
    return "\n".join([*lines, "Median and interquartile range over pairs timed alternately in one run."])


def as_json(figures: list[Figure]) -> str:
    """The figures, and the machine they were measured on, as JSON."""
    rows = [{**asdict(figure), "met": figure.met} for figure in figures]
    return json.dumps({"figures": rows, "machine": machine()}, indent=1)
