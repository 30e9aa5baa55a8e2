"""`train`: put a run together, let its programs go on one of the clocks, and collect what it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .budget import Budget
from .clocks import RealClock, VirtualClock
from .costs import layer_costs
from .errors import ArgumentError, choose, number, positive_int
from .evaluate import Evaluator
from .methods.base import Method
from .observe import RealObserver, VirtualObserver, source
from .preflight import check_devices, check_loss, check_model, check_rows, check_schedule, check_slow, check_type
from .process import seeded
from .progress import bar
from .replica import trainable
from .result import Result, machine
from .rules import SGD, Constant, Rule, Schedule
from .run import Diverged, Run
from .tasks import Task
from .threads import Program, ProgramError
from .trace import Trace
from .transport import Link


@dataclass(frozen=True)
class Threads:
    """Programs are threads that run freely; seconds are seconds."""


@dataclass(frozen=True)
class Virtual:
    """Programs run one at a time on a virtual clock; the same seed gives the same run, bit for bit.

    Args:
        forward, backward: virtual seconds of a batch's two passes.
        cost: how a pass is divided among the layers: "equal", "flops", or "measured" on this machine.
        jitter: sigma of a log-normal factor on each time.
        per: whether that factor is drawn once for each pass of a "batch" or for each "layer".
    """

    forward: float = 1.0
    backward: float = 2.0
    cost: str = "equal"
    jitter: float = 0.1
    per: str = "batch"

    def __post_init__(self) -> None:
        number("forward", self.forward, 0, open_low=True)
        number("backward", self.backward, 0, open_low=True)
        choose("cost", self.cost, ("equal", "flops", "measured"))
        number("jitter", self.jitter, 0, 2)
        choose("per", self.per, ("batch", "layer"))


class Watch:
    """A run that goes on, as seen from outside: how far it is, and a way to end it."""

    def __init__(self, run: Run, evaluator: Evaluator) -> None:
        self._run, self._evaluator, self._before = run, evaluator, (0.0, 0)

    @property
    def samples(self) -> int:
        """Trained so far."""
        return self._run.samples

    @property
    def seconds(self) -> float:
        """The clock's, since the run began."""
        return self._run.clock.now()

    def loss(self) -> float | None:
        """Mean training loss of the batches since this was last asked; None if there was none."""
        total, batches = self._evaluator.trained()
        new, self._before = (total - self._before[0], batches - self._before[1]), (total, batches)
        return new[0] / new[1] if new[1] else None

    def staleness(self) -> Counter[int]:
        """How many writes had which staleness so far."""
        return self._run.trace.staleness()

    def stop(self) -> None:
        """End the run in good order: no more batches are begun, and `train` returns what there is."""
        self._run.budget.close()


ENGINES: dict[str, type[Threads] | type[Virtual]] = {"threads": Threads, "virtual": Virtual}


def train(
    task: Task,
    method: Method,
    *,
    samples: int | None = None,
    seconds: float | None = None,
    target: float | None = None,
    batch_size: int = 64,
    rule: Rule | None = None,
    schedule: Schedule | None = None,
    engine: str | Threads | Virtual = "threads",
    devices: Sequence[str] | None = None,
    seed: int = 0,
    shuffle: bool = True,
    slow: Mapping[Any, float] | None = None,
    link: Link | None = None,
    trace: bool = True,
    evaluate_every: int | None = None,
    micro_batches: int = 1,
    layers: str | list[str] = "module",
    progress: bool = True,
    watch: Callable[[Watch], None] | None = None,
) -> Result:
    """Train a task with a method until the first of the given budgets is spent.

    Args:
        samples, seconds, target: the budget, at least one: training samples, the clock's seconds, test accuracy (or
            loss) of the mean model.
        batch_size: rows of one worker's batch.
        rule: how gradients change weights; default `rules.SGD(lr=0.05)`.
        schedule: samples seen -> factor on the learning rate; default constant.
        engine: "threads", "virtual", or an object with settings, such as ``Virtual(jitter=0)``.
        devices: where replicas and data lie, one for all workers for now; default the CPU.
        seed: of everything random: initial weights, order of the rows, peers, jitter, dropout.
        shuffle: False visits the rows in order.
        slow: {worker number or program group: factor}: these compute so many times slower.
        link: latency, bandwidth and loss between workers; default a put is there at once.
        trace: whether to record events and staleness.
        evaluate_every: samples between two evaluations; default a tenth of the budget, or half an epoch.
        micro_batches: equal parts in which a batch is computed before it is written.
        layers: how a model is cut into layers: "module", "parameter", or a list of names of blocks.
        progress: show a bar on a terminal.
        watch: called about ten times a second, from the calling thread, with a `Watch` on the run.

    Raises:
        ArgumentError: before anything starts, for what cannot work.
        Diverged: when a loss or weight is no longer finite.
        ProgramError: for the first exception in a program.
        KeyboardInterrupt: Ctrl-C, when all threads have ended.
    """
    kind = _engine(engine)
    places = check_devices(devices, virtual=isinstance(kind, Virtual))
    rule = SGD() if rule is None else rule
    schedule = Constant() if schedule is None else schedule
    check_type("task", task, Task, "minilayup.tasks.fashion_mnist(), for example")
    check_type("method", method, Method, "minilayup.LayUp(workers=2), for example")
    check_type("rule", rule, Rule, "minilayup.rules.SGD(lr=0.05), for example")
    check_type("link", link, (Link, type(None)), "minilayup.Link(latency=0.1), for example")
    check_type("slow", slow, (Mapping, type(None)), "{worker or group: factor}, such as {0: 4.0}")
    check_schedule(schedule)
    budget = Budget(samples, seconds, target, positive_int("batch_size", batch_size))
    if task.accuracy and target is not None:
        number("target", target, 0, 1, open_low=True)
    if batch_size % positive_int("micro_batches", micro_batches):
        raise ArgumentError(
            f"batch_size={batch_size} cannot be cut into micro_batches={micro_batches} equal parts: give a divisor"
        )
    with seeded(positive_int("seed", seed, at_least=0)):
        model = task.model().to(places[0])
    check_model(model)
    run = Run(
        task.to(places[0]),
        method,
        model,
        RealClock() if isinstance(kind, Threads) else VirtualClock(),
        budget,
        rule,
        schedule,
        Trace(method.threads, [name for name, _, _ in trainable(model, layers)], on=trace),
        link=link,
        seed=seed,
        shuffle=shuffle,
        micro_batches=micro_batches,
        layers=layers,
        devices=places,
    )
    data = run.task.train.batch(torch.arange(batch_size))
    check_rows(run.task)
    check_loss(run.task, model, data)
    evaluator = Evaluator(run, _every(evaluate_every, budget, len(task.train)), on_the_fly=target is not None)
    settings = {
        "lr": rule.lr, "rule": repr(rule), "schedule": repr(schedule),
        "samples": samples, "seconds": seconds, "target": target, "batch_size": batch_size, "seed": seed,
        "engine": repr(kind), "devices": [str(place) for place in places], "link": repr(link),
        "slow": {str(key): factor for key, factor in (slow or {}).items()}, "shuffle": shuffle, "skew": task.skew,
        "micro_batches": micro_batches, "layers": layers, "machine": machine(),
    }  # fmt: skip
    with seeded(seed):
        if isinstance(kind, Virtual):  # with one thread throughout: the same bits, whatever number the caller has set
            torch.set_num_threads(1)
        _go(run, method, kind, slow or {}, evaluator, data, progress, watch)
        return evaluator.result(method, settings)


def _go(
    run: Run,
    method: Method,
    kind: Threads | Virtual,
    slow: Mapping[Any, float],
    evaluator: Evaluator,
    data: Any,
    progress: bool,
    watch: Callable[[Watch], None] | None,
) -> None:
    """Let the method's programs run to their end."""
    factors: list[float] = [1.0] * method.threads
    if isinstance(kind, Threads):
        run.observer = RealObserver(run.clock, run.trace, factors, evaluator.note, run.written)
    else:
        costs = layer_costs(kind.cost, run.task, run.model, data, run.layers, kind.forward, kind.backward)
        sources = [source(index, run.seed) for index in range(method.threads)]
        run.observer = VirtualObserver(
            run.clock, run.trace, factors, evaluator.note, run.written, costs, kind.jitter, kind.per, sources
        )
    programs = method.programs(run)
    for index, program in enumerate(programs):
        program.index, program.seed = index, 1_000_003 * run.seed + index
    factors[:] = _slowness(slow, programs)
    run.trace.programs = programs
    run.crossed = evaluator.crossed
    evaluator.take()
    shown = bar(run.budget.samples, "samples", method.name, progress)
    watched = Watch(run, evaluator)

    def tick() -> None:
        shown.update(run.samples - shown.n)
        if watch is not None:
            watch(watched)

    try:
        run.clock.run(programs, tick)
    except ProgramError as error:
        if isinstance(error.__cause__, Diverged):
            raise error.__cause__ from None
        raise
    finally:
        shown.close()


def _slowness(slow: Mapping[Any, float], programs: list[Program]) -> list[float]:
    """The factor of each program: that of its worker times that of its group."""
    check_slow(slow, {key for program in programs for key in (program.worker, program.group)})
    return [float(slow.get(p.worker, 1.0)) * float(slow.get(p.group, 1.0)) for p in programs]


def _engine(engine: str | Threads | Virtual) -> Threads | Virtual:
    if isinstance(engine, (Threads, Virtual)):
        return engine
    if not isinstance(engine, str):
        raise ArgumentError(f"engine={engine!r} is not known: give 'threads', 'virtual' or Virtual(jitter=0), say")
    return ENGINES[choose("engine", engine, ENGINES)]()


def _every(given: int | None, budget: Budget, rows: int) -> int:
    """Samples between two evaluations."""
    if given is not None:
        return positive_int("evaluate_every", given)
    return max(budget.batch_size, budget.samples // 10 if budget.samples and not budget.seconds else rows // 2)
