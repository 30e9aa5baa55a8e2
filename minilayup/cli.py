"""The command line.  Everything it does is one call of the library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from .errors import ArgumentError, DataError

app = typer.Typer(
    help="Asynchronous SGD that can be touched: races, runs and lessons.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Workers = Annotated[int, typer.Option(help="Workers (threads of each method).")]
Model = Annotated[str, typer.Option(help="mlp, cnn or resnet18.")]
Engine = Annotated[str, typer.Option(help="threads (real time) or virtual (replayable).")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """What a person can put right is one sentence and exit code 2, not a traceback; Ctrl-C is exit code 130."""
    from .run import Diverged

    try:
        yield
    except (ArgumentError, DataError, Diverged) as error:
        typer.echo(f"minilayup: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("\nInterrupted.", err=True)
        raise typer.Exit(130) from None


def folder(path: Path) -> Path:
    """An output folder, made and tried before anything starts."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / ".try").write_text("")
        (path / ".try").unlink()
    except OSError as error:
        raise ArgumentError(
            f"out={str(path)!r} cannot be written to ({error.strerror}): choose another folder"
        ) from None
    return path


@app.command(epilog="Example: minilayup doctor")
def doctor() -> None:
    """What this machine has, and what will be slow or missing, in plain words."""
    from .doctor import findings, report

    typer.echo(report(findings()))


@app.command(epilog="Example: minilayup race --engine virtual --seeds 3")
def race(
    workers: Annotated[int | None, typer.Option(help="Threads of each method; default 2, or 4 on 4 cores.")] = None,
    model: Model = "cnn",
    samples: Annotated[int, typer.Option(help="Training samples of each run.")] = 16_000,
    seeds: Annotated[int, typer.Option(help="Runs of each method, from different initial weights.")] = 3,
    engine: Engine = "threads",
    equal_rate: Annotated[
        float | None, typer.Option(help="One learning rate for all, instead of each method's tuned one.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html and results.json.")] = Path("runs/race"),
) -> None:
    """Sync SGD, Hogwild!, PD-ASGD and LayUp side by side on real data: equal workers, then one 4 times slower."""
    from .progress import bar
    from .race import Race, contestants, default_workers, run_race
    from .report import write

    with plain_errors():
        out = folder(out)
        workers = default_workers() if workers is None else workers
        arguments = {"workers": workers, "model": model, "samples": samples, "seeds": seeds, "engine": engine,
                     "equal_rate": equal_rate}  # fmt: skip
        entered = Race(arguments)
        shown = bar(2 * len(contestants(workers)) * seeds, "runs")

        def step(text: str) -> None:
            shown.set_description(text)
            shown.update()

        interrupted = False
        try:
            for comparison in run_race(
                entered, workers=workers, model=model, samples=samples, seeds=seeds, engine=engine,
                equal_rate=equal_rate, progress=step,
            ):  # fmt: skip
                shown.clear()
                typer.echo(f"\n{comparison.table()}\n")
        except KeyboardInterrupt:
            interrupted = True
            entered.notes.append("Interrupted: what follows is what was finished.")
        finally:
            shown.close()
        entered.save(out / "results.json")
        write(entered, out / "report.html")
        if interrupted:
            typer.echo("\nInterrupted. Finished: " + ("; ".join(entered.finished) or "no run") + ".")
        typer.echo(f"Report: {out / 'report.html'}   everything: {out / 'results.json'}")
        if interrupted:
            raise typer.Exit(130)


@app.command(epilog="Example: minilayup train layup --task fashion-mnist --model cnn --workers 2")
def train(
    method: Annotated[str, typer.Argument(help="sgd, sync-sgd, hogwild, pd-asgd or layup.")],
    task: Annotated[str, typer.Option(help="fashion-mnist, cifar10, cifar100 or quadratic.")] = "fashion-mnist",
    model: Annotated[str | None, typer.Option(help="The task's model: mlp, cnn or resnet18.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Default 2; pd-asgd: 1 forward and workers - 1 backward threads.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Training samples; default 200,000 without --seconds.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds of the engine's clock.")] = None,
    target: Annotated[float | None, typer.Option(help="End at this test accuracy, such as 0.85.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of one worker's batch.")] = 64,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.05,
    momentum: Annotated[float, typer.Option(help="Momentum.")] = 0.0,
    exchange: Annotated[
        str, typer.Option(help="layup: average, push-sum, relaxed, increment, cumulative.")
    ] = "average",
    skew: Annotated[float, typer.Option(help="How different the workers' labels are, 0 to 1.")] = 0.0,
    engine: Engine = "threads",
    device: Annotated[str, typer.Option(help="cpu or cuda:0; one for all workers.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    download: Annotated[bool, typer.Option(help="Download the data set if it is not there.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for result.json and trace.json (Perfetto).")] = None,
) -> None:
    """Train one method and print its curve."""
    from . import tasks
    from .engine import train as run
    from .errors import choose, positive_int
    from .methods import BY_NAME, PDASGD, SGD, LayUp, Method
    from .rules import SGD as SGDRule

    with plain_errors():
        kind = BY_NAME[choose("method", method, BY_NAME)]
        if kind is SGD and workers is not None:
            raise ArgumentError(f"workers={workers}: sgd has one worker; leave --workers out, or choose sync-sgd")
        workers = 2 if workers is None else workers
        chosen: Method
        if kind is PDASGD:
            chosen = PDASGD(forward=1, backward=positive_int("workers", workers, at_least=2) - 1)
        elif kind is LayUp:
            chosen = LayUp(workers, exchange=exchange)
        else:
            chosen = SGD() if kind is SGD else kind(workers)  # type: ignore[call-arg]
        where = folder(out) if out else None
        made = tasks.make(task, model, skew, download)
        if samples is None and seconds is None:
            samples = 200_000
        result = run(
            made, chosen, samples=samples, seconds=seconds, target=target, batch_size=batch_size,
            rule=SGDRule(lr=lr, momentum=momentum), engine=engine, devices=device.split(","), seed=seed,
        )  # fmt: skip
        for point in result.points:
            typer.echo(
                f"{point.samples:>9,} samples  {point.seconds:8.2f} {result.unit}  {result.metric} {point.score:.4g}"
            )
        typer.echo("\n" + result.summary())
        if where:
            typer.echo(f"Written: {result.save(where / 'result.json')}, {result.trace.save(where / 'trace.json')}")


@app.command(epilog="Example: minilayup exchanges --seeds 1")
def exchanges(
    workers: Workers = 4,
    samples: Annotated[int, typer.Option(help="Training samples of each run.")] = 20_000,
    seeds: Annotated[int, typer.Option(help="Runs of each rule.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Folder for exchanges.json.")] = None,
) -> None:
    """Compare LayUp's exchange rules on the CNN, on the virtual clock, in about 20 minutes: which should be default?"""
    from .exchanges import compare_exchanges

    with plain_errors():
        where = folder(out) if out else None
        table, stored = compare_exchanges(workers=workers, samples=samples, seeds=seeds, progress=typer.echo)
        typer.echo(f"\n{table}")
        if where:
            (where / "exchanges.json").write_text(stored, encoding="utf-8")


@app.command(epilog="Example: minilayup bench --only import")
def bench(
    only: Annotated[str | None, typer.Option(help="Measure only the figures whose name contains this.")] = None,
    pairs: Annotated[int, typer.Option(help="Pairs timed alternately for each figure.")] = 15,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """The performance figures, each a ratio of two things timed alternately in one run."""
    from .bench import as_json, main_table, run_all

    with plain_errors():
        figures = run_all(pairs=pairs, only=only)
        typer.echo(as_json(figures) if json else main_table(figures))


@app.command(epilog="Example: minilayup lab")
def lab() -> None:
    """Open JupyterLab on the notebooks."""
    notebooks = Path(__file__).parents[1] / "notebooks"
    with plain_errors():
        if find_spec("jupyterlab") is None:
            raise ArgumentError("JupyterLab is not installed: pip install -e '.[lab]'")
    raise typer.Exit(subprocess.call([sys.executable, "-m", "jupyterlab", f"--notebook-dir={notebooks}"]))
