"""What this machine has, and what follows from it: `minilayup doctor`.

Each function looks at one thing and returns a `Finding`; `findings` asks them all, `report` lays them out as text. They
count what this process may use, which in a container or on a shared machine is less than what the machine has.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

__all__ = ["Finding", "findings", "report"]

# The bounds of pyproject.toml that are worth a sentence; tests/test_doctor.py keeps them in step with it.
OLDEST_TORCH = "2.13"
OLDEST_LAB = {"jupyterlab": 4, "ipywidgets": 8}
BROKEN_IPYKERNEL = ("7.0.0", "7.0.1")

LITTLE_MEMORY = 2 * 2**30  # bytes
CONTROL_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Finding:
    """One thing about this machine, and what it means for the reader.

    `state` is "ok", "note" (it works, and knowing this saves a surprise) or "problem" (something will fail).
    """

    topic: str
    state: Literal["ok", "note", "problem"]
    text: str
    what_follows: str


def findings() -> list[Finding]:
    """Look at everything, in the order of the report."""
    return [python(), cores(), memory(), pytorch(), gpu(), variables(), data(), notebooks(), folder()]


def report(findings: Sequence[Finding]) -> str:
    """Lay findings out for a terminal: a paragraph each, and a last line that sums up."""
    paragraphs = []
    for finding in findings:
        margin = f"{finding.state:<9}{finding.topic:<11}"
        lines = textwrap.wrap(f"{finding.text} {finding.what_follows}", 100 - len(margin), break_on_hyphens=False)
        paragraphs.append(margin + f"\n{' ' * len(margin)}".join(lines))
    problems = sum(finding.state == "problem" for finding in findings)
    return "\n".join([*paragraphs, "", f"{count(problems, 'problem')} found." if problems else "No problems found."])


def python() -> Finding:
    """Which Python this is, and whether its threads take turns."""
    version = f"Python {platform.python_version()}"
    # Asked now that torch is imported: an imported package can switch the GIL on. Before 3.13 it is always on.
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        text = f"{version}, free-threaded, and the GIL is off."
        follows = "The notebooks' figures were measured with the GIL; small models may gain more from threads here."
        return Finding("Python", "note", text, follows)
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        text = f"{version}, free-threaded, but an imported package has switched the GIL on."
        return Finding("Python", "note", text, "Threads take turns as usual; PYTHON_GIL=0 keeps it off, at your risk.")
    text = f"{version}, with the GIL: one thread at a time runs Python."
    follows = "Threads still overlap inside PyTorch's operations; the smaller the model, the less they gain."
    return Finding("Python", "ok", text, follows)


def cores() -> Finding:
    """How many threads can really run at the same time."""
    machine = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine
    # "200000 100000" is 200,000 microseconds out of every 100,000, hence two cores.
    limits = [int(quota) / int(period) for quota, period in map(str.split, control_files("cpu.max")) if quota != "max"]
    usable = max(1, int(min([allowed, *limits])))
    text = f"{count(usable, 'core')}."
    if usable < machine:
        text = f"{count(usable, 'core')} of the machine's {machine}: more are not allowed to this process."
    if usable == 1:
        follows = "On real threads the workers take turns, so nothing gets faster; the virtual clock shows what would."
        return Finding("cores", "note", text, follows)
    follows = f"Races use {4 if usable >= 4 else 2} workers; expect at most {usable} times one thread's samples/s."
    return Finding("cores", "note" if usable < machine else "ok", text, follows)


def memory() -> Finding:
    """How much memory there is for weights and activations."""
    usable = usable_memory()
    if usable is None:
        text = "How much memory there is cannot be read on this system."
        return Finding("memory", "note", text, "Each worker needs room for its own copy of the weights.")
    text = f"{usable / 2**30:.1f} GiB of memory to use."
    if usable < LITTLE_MEMORY:
        return Finding("memory", "note", text, "That is little: close other programs, or use fewer workers.")
    follows = "Each worker takes its own copy of the weights, each batch in flight its own activations."
    return Finding("memory", "ok", text, follows)


def pytorch() -> Finding:
    """Which PyTorch this is, and whether it is one that the tests have passed with."""
    text = f"PyTorch {torch.__version__}, {count(torch.get_num_threads(), 'thread')} for one operation."
    if leading_numbers(torch.__version__) < leading_numbers(OLDEST_TORCH):
        return Finding("PyTorch", "problem", text, f"minilayup is tested with {OLDEST_TORCH} and newer: upgrade torch.")
    follows = "While a method trains, each of its threads uses one; afterwards the number is set back."
    return Finding("PyTorch", "ok", text, follows)


def gpu() -> Finding:
    """Which accelerators PyTorch can use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns about a driver that does not fit; so does this finding
        available = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if available else []
    if torch.backends.mps.is_available():
        names.append("Apple MPS")
    if names:
        follows = "Runs use it where you ask for it; the virtual clock works on the CPU only."
        return Finding("GPU", "ok", f"{', '.join(names)}.", follows)
    if shutil.which("nvidia-smi"):
        text = "An NVIDIA driver is installed, but PyTorch cannot use a GPU."
        follows = f"Everything runs on the CPU. PyTorch was built for CUDA {torch.version.cuda}: does the driver fit?"
        return Finding("GPU", "note", text, follows)
    return Finding("GPU", "ok", "No GPU that PyTorch can use.", "Everything runs on the CPU, as the notebooks expect.")


def variables() -> Finding:
    """Environment variables that change how many threads run, or where."""
    binding = set_variables("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")
    counting = set_variables("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    text = f"{', '.join(f'{name}={value}' for name, value in (binding | counting).items())}."
    if binding:
        follows = f"{' and '.join(binding)} can tie all workers to one core, where they take turns: unset it first."
        return Finding("variables", "problem", text, follows)
    if counting:
        follows = "This limits one operation outside a run; inside, every thread of a method uses one thread anyway."
        return Finding("variables", "note", text, follows)
    return Finding("variables", "ok", "No thread settings in the environment.", "Nothing to undo before you measure.")


def data() -> Finding:
    """Whether the data set that comes with minilayup is there and whole."""
    try:
        from minilayup.data import load_fashion_mnist

        load_fashion_mnist()
    except Exception as error:  # the doctor reports what is wrong, whatever it is
        text = f"The Fashion-MNIST that comes with minilayup does not load: {error}"
        return Finding("data", "problem", text, "The race and most notebooks need it.")
    return Finding("data", "ok", "Fashion-MNIST is here.", "The race and the notebooks download nothing.")


def notebooks() -> Finding:
    """Whether the notebooks open, and their figures move."""
    installed: dict[str, str] = {}
    missing: list[str] = []
    for name in (*OLDEST_LAB, "ipykernel"):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        follows = 'Everything except the notebooks works. For them: pip install -e ".[lab]", or make lab.'
        return Finding("notebooks", "note", f"Not installed: {', '.join(missing)}.", follows)
    text = f"{', '.join(f'{name} {version}' for name, version in installed.items())}."
    if installed["ipykernel"] in BROKEN_IPYKERNEL:
        follows = "This ipykernel loses what threads display, and live figures stand still: upgrade ipykernel."
        return Finding("notebooks", "problem", text, follows)
    old = [name for name, oldest in OLDEST_LAB.items() if leading_numbers(installed[name])[0] < oldest]
    if old:
        return Finding("notebooks", "problem", text, f"Too old for the figures: upgrade {' and '.join(old)}.")
    return Finding("notebooks", "ok", text, "The notebooks open, and their figures move.")


def folder() -> Finding:
    """Whether a report can be saved in the current folder."""
    try:
        with tempfile.TemporaryFile(dir="."):
            pass
    except OSError as error:
        text = f"The current folder cannot be written to: {error.strerror}."
        return Finding("folder", "problem", text, "The race cannot save its report there: change to another folder.")
    return Finding("folder", "ok", "The current folder can be written to.", "Reports can be saved there.")


def usable_memory() -> int | None:
    """Bytes that are free on the machine (where only the total is known, that), within a container's limit."""
    limits = [int(limit) for limit in control_files("memory.max") if limit != "max"]
    try:
        free = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if free:
            limits.append(int(free[1]) * 1024)
    except OSError:  # not Linux
        names = getattr(os, "sysconf_names", {})
        if "SC_PHYS_PAGES" in names:
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def set_variables(*names: str) -> dict[str, str]:
    """Those of the environment variables that are set, and not to "false"."""
    values = {name: os.environ.get(name, "") for name in names}
    return {name: value for name, value in values.items() if value.lower() not in ("", "false")}


def control_files(name: str) -> list[str]:
    """What the file `name` says in this process's control group and in those around it: a container's limits."""
    try:
        own = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    except OSError:  # not Linux
        return []
    group = CONTROL_GROUPS / (own[1] if own else "")
    files = [folder / name for folder in (group, *group.parents) if folder.is_relative_to(CONTROL_GROUPS)]
    return [file.read_text().strip() for file in files if file.is_file()]


def leading_numbers(version: str) -> tuple[int, ...]:
    """The first numbers of a version: (2, 13) for "2.13.0+cpu"."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 core", "2 cores"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
