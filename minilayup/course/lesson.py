"""What a lesson's set-up cell opens: versions, the scale switch, stored results, checks and solutions."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..errors import ArgumentError, choose
from ..models import mlp
from ..tasks import Task, fashion_mnist
from .exercise import Exercise, Verdict

LESSONS = {
    "00": "start_here",
    "01": "sync_sgd",
    "02": "data_parallel",
    "03": "threads",
    "04": "hogwild",
    "05": "layerwise_updates",
    "06": "decoupled",
    "07": "pd_asgd",
}


class Lesson:
    """One lesson of the course.

    Attributes:
        number: "00" to "07".
        seed: of everything random in the lesson.
        fast: whether the environment variable MINILAYUP_FAST asks for the short version, as the tests do.
        exercises: {"04.1": `Exercise`, …}.

    Args:
        folder: where the notebooks lie; default: found from the working directory or the checkout.
    """

    def __init__(self, number: str, seed: int = 0, folder: Path | None = None) -> None:
        self.number, self.seed = choose("lesson", number, LESSONS), seed
        self.fast = os.environ.get("MINILAYUP_FAST", "") not in ("", "0")
        checks = importlib.import_module(f"{__package__}.lesson_{number}")
        self.exercises: dict[str, Exercise] = {exercise.id: exercise for exercise in checks.EXERCISES}
        self._folder = folder
        self._tried: set[str] = set()

    def __str__(self) -> str:
        """What the set-up cell prints: the versions, the machine, and what may differ on the reader's."""
        from importlib.metadata import version

        packages = ("minilayup", "torch", "matplotlib", "ipywidgets", "ipykernel")
        gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return "\n".join(
            [
                f"lesson {self.number}, seed {self.seed}{', short version (MINILAYUP_FAST)' if self.fast else ''}",
                f"Python {platform.python_version()}, {'with' if gil else 'without'} the global interpreter lock; "
                + ", ".join(f"{name} {version(name)}" for name in packages),
                f"{cores} cores, {gpus or 'no'} CUDA GPU{'s' * (gpus > 1)}; this lesson computes on the CPU",
            ]
        )

    def scaled(self, full: int, short: int) -> int:
        """``full``, or ``short`` in the short version."""
        return short if self.fast else full

    def results(self, name: str | None = None) -> dict[str, Any]:
        """The stored, regenerated measurements of a lesson: ``data/results/lesson04.json`` for "04"."""
        return stored(f"lesson{name or self.number}")

    def grade(self, id: str, answer: Any) -> Verdict:
        """The verdict on an answer, not printed."""
        verdict = self.exercises[choose("exercise", id, self.exercises)].grade(answer)
        if verdict.tried:
            self._tried.add(id)
        return verdict

    def check(self, id: str, answer: Any) -> None:
        """Print what was expected, what the answer does, and a hint.  An untouched stub is told so, not failed."""
        verdict = self.grade(id, answer)
        if not verdict.tried:
            exercise = self.exercises[id]
            print(f"{id} “{exercise.title}”: not tried yet. About {exercise.minutes} minutes.")  # noqa: T201
        else:
            print(f"{id} {verdict}")  # noqa: T201

    def reveal(self, id: str) -> None:
        """Show the solution of an exercise, after one attempt."""
        choose("exercise", id, self.exercises)
        if id not in self._tried:
            print(f"{id}: try it once first, with check({id!r}, …); then this shows a solution.")  # noqa: T201
            return
        print(self.solution(id))  # noqa: T201

    def solution(self, id: str) -> str:
        """The solution's text, from ``notebooks/solutions/``."""
        path = self._find() / "solutions" / f"lesson_{self.number}.py"
        sections = path.read_text(encoding="utf-8").split("# %% ")[1:]
        found = {section.split("\n", 1)[0].strip(): section.split("\n", 1)[1].strip() for section in sections}
        return found[choose("solution", id, found)]

    def _find(self) -> Path:
        checkout = Path(__file__).parents[2] / "notebooks"
        for folder in (self._folder, Path.cwd(), Path.cwd() / "notebooks", checkout):
            if folder is not None and (folder / "solutions").is_dir():
                return folder
        raise ArgumentError("notebooks/solutions is not here: open the notebook from a checkout of minilayup")


def open(number: str, seed: int = 0) -> Lesson:
    """Open a lesson by its number, such as "04"."""
    return Lesson(number, seed)


def small_task() -> Task:
    """Fashion-MNIST and a perceptron with two hidden layers of 64: a run of 12,800 samples takes about 0.3 s."""
    return replace(fashion_mnist("mlp"), model=partial(mlp, width=64, hidden=2))


def stored(name: str) -> dict[str, Any]:
    """A file of ``data/results/``, by its name without ".json".

    Raises: FileNotFoundError where there is none.
    """
    package = Path(__file__).parents[1]
    for folder in (package.parent / "data", package / "_data"):  # in a checkout; in an installed wheel
        path = folder / "results" / f"{name}.json"
        if path.exists():
            loaded: dict[str, Any] = json.loads(path.read_text("utf-8"))
            return loaded
    raise FileNotFoundError(f"data/results/{name}.json is not there; scripts in bench/lessons/ write such files")


def alone() -> None:
    """Call it first in a cell that measures: refuses while a training run goes on in the background.

    Raises: `RuntimeError` that says what to stop.
    """
    others = sorted(t.name for t in threading.enumerate() if t.name.startswith("minilayup-"))
    if others:
        raise RuntimeError(
            f"A run is going on in the background ({', '.join(others)}) and would take part of the machine that this "
            "cell measures. Press its Stop button, then run this cell again."
        )
