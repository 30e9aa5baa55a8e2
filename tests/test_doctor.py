"""The doctor says in plain words what a machine has: each test pretends one kind of machine."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import sysconfig
import types
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from minilayup import doctor
from minilayup.errors import ArgumentError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings tomli there
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine with four free cores, no container limit and no thread settings, whatever the real one is."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(doctor, "CONTROL_GROUPS", tmp_path / "cgroup")
    for name in list(os.environ):
        if name.startswith(("OMP_", "MKL_", "OPENBLAS_", "GOMP_")):
            monkeypatch.delenv(name)
    return monkeypatch


def limit(file: str, text: str) -> None:
    """Write a container limit where the doctor looks for it."""
    doctor.CONTROL_GROUPS.mkdir(exist_ok=True)
    (doctor.CONTROL_GROUPS / file).write_text(text + "\n")


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Pretend that exactly these packages are installed."""

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)


def provide_data(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
    """Pretend that the shipped data loads, or fails with `error`."""

    def load_fashion_mnist() -> None:
        if error is not None:
            raise error

    monkeypatch.setitem(sys.modules, "minilayup.data", types.SimpleNamespace(load_fashion_mnist=load_fashion_mnist))


def test_this_machine_is_described_in_whole_sentences() -> None:
    found = doctor.findings()
    topics = ["Python", "cores", "memory", "PyTorch", "GPU", "variables", "data", "notebooks", "folder"]
    assert [finding.topic for finding in found] == topics
    for finding in found:
        assert finding.state in ("ok", "note", "problem")
        assert finding.text and finding.what_follows.endswith(".")


def test_the_report_has_every_finding_fits_a_terminal_and_counts_problems() -> None:
    long = "A sentence that does not fit on one line. " * 5
    good = doctor.Finding("cores", "ok", "2 cores.", "Enough.")
    bad = doctor.Finding("data", "problem", long, "What follows.")
    text = doctor.report([good, bad])
    assert "ok       cores      2 cores. Enough." in text
    assert "problem  data       A sentence" in text and "What follows." in text
    assert max(map(len, text.splitlines())) <= 100
    assert text.endswith("\n1 problem found.")
    assert doctor.report([bad, bad]).endswith("\n2 problems found.")
    assert doctor.report([good]).endswith("\nNo problems found.")


def test_all_cores_free(machine: pytest.MonkeyPatch) -> None:
    found = doctor.cores()
    assert (found.state, found.text) == ("ok", "4 cores.")
    assert found.what_follows == "Races use 4 workers; expect at most 4 times one thread's samples/s."


def test_one_core(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(os, "cpu_count", lambda: 1)
    machine.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    found = doctor.cores()
    assert (found.state, found.text) == ("note", "1 core.")
    assert "take turns" in found.what_follows and "virtual clock" in found.what_follows


def test_a_process_tied_to_some_cores(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(os, "sched_getaffinity", lambda pid: {0, 2}, raising=False)
    found = doctor.cores()
    assert found.state == "note"
    assert found.text.startswith("2 cores of the machine's 4")
    assert "at most 2 times" in found.what_follows


def test_a_system_that_cannot_tie_processes(machine: pytest.MonkeyPatch) -> None:
    machine.delattr(os, "sched_getaffinity")
    assert doctor.cores().text == "4 cores."


@pytest.mark.parametrize(
    ("cpu_max", "text"),
    [
        ("200000 100000", "2 cores of"),
        ("250000 100000", "2 cores of"),
        ("50000 100000", "1 core of"),
        ("800000 100000", "4 cores."),
        ("max 100000", "4 cores."),
    ],
)
def test_a_container_limit_on_cores(machine: pytest.MonkeyPatch, cpu_max: str, text: str) -> None:
    limit("cpu.max", cpu_max)
    assert doctor.cores().text.startswith(text)


def test_a_container_limit_on_memory(machine: pytest.MonkeyPatch) -> None:
    limit("memory.max", "max")
    unlimited = doctor.memory()
    assert "GiB of memory" in unlimited.text
    limit("memory.max", str(2**30))
    limited = doctor.memory()
    assert (limited.state, limited.text) == ("note", "1.0 GiB of memory to use.")
    assert "fewer workers" in limited.what_follows


def test_memory_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "usable_memory", lambda: None)
    found = doctor.memory()
    assert found.state == "note" and "cannot be read" in found.text


def test_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 0}.get)
    assert "with the GIL" in doctor.python().text
    monkeypatch.delattr(sys, "_is_gil_enabled")  # Python 3.12 and older
    assert "with the GIL" in doctor.python().text


def test_a_free_threaded_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    found = doctor.python()
    assert found.state == "note" and found.text.endswith("free-threaded, and the GIL is off.")
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True)
    found = doctor.python()
    assert found.state == "note" and "switched the GIL on" in found.text and "PYTHON_GIL=0" in found.what_follows


@pytest.mark.parametrize(
    ("version", "state"), [("2.13.0", "ok"), ("2.14.1+cu130", "ok"), ("3.0.0a0", "ok"), ("2.9.1", "problem")]
)
def test_the_version_of_pytorch(monkeypatch: pytest.MonkeyPatch, version: str, state: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    found = doctor.pytorch()
    assert found.state == state and version in found.text
    assert ("upgrade torch" in found.what_follows) == (state == "problem")


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert doctor.gpu().text == "No GPU that PyTorch can use."
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    found = doctor.gpu()
    assert found.state == "note" and "cannot use" in found.text
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"Card {i}")
    found = doctor.gpu()
    assert (found.state, found.text) == ("ok", "Card 0, Card 1.")


def test_thread_settings_in_the_environment(machine: pytest.MonkeyPatch) -> None:
    assert doctor.variables().text == "No thread settings in the environment."
    machine.setenv("OMP_PROC_BIND", "false")
    assert doctor.variables().state == "ok"
    machine.setenv("OMP_NUM_THREADS", "1")
    found = doctor.variables()
    assert (found.state, found.text) == ("note", "OMP_NUM_THREADS=1.")
    assert "limits one operation" in found.what_follows
    machine.setenv("OMP_PROC_BIND", "true")
    found = doctor.variables()
    assert (found.state, found.text) == ("problem", "OMP_PROC_BIND=true, OMP_NUM_THREADS=1.")
    assert "one core" in found.what_follows


def test_the_shipped_data(monkeypatch: pytest.MonkeyPatch) -> None:
    provide_data(monkeypatch)
    assert doctor.data().state == "ok"
    provide_data(monkeypatch, ArgumentError("the file is not there."))
    found = doctor.data()
    assert found.state == "problem" and found.text.endswith("does not load: the file is not there.")


def test_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, jupyterlab="4.4.0", ipywidgets="8.1.7", ipykernel="6.29.5")
    found = doctor.notebooks()
    assert (found.state, found.text) == ("ok", "jupyterlab 4.4.0, ipywidgets 8.1.7, ipykernel 6.29.5.")


def test_no_jupyter(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ipykernel="6.29.5")
    found = doctor.notebooks()
    assert (found.state, found.text) == ("note", "Not installed: jupyterlab, ipywidgets.")
    assert 'pip install -e ".[lab]"' in found.what_follows


def test_a_jupyter_that_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, jupyterlab="4.4.0", ipywidgets="8.1.7", ipykernel="7.0.1")
    found = doctor.notebooks()
    assert found.state == "problem" and "upgrade ipykernel" in found.what_follows
    install(monkeypatch, jupyterlab="3.6.1", ipywidgets="7.7.0", ipykernel="6.29.5")
    found = doctor.notebooks()
    assert found.state == "problem" and "upgrade jupyterlab and ipywidgets" in found.what_follows


def test_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctor.folder().state == "ok"
    assert list(tmp_path.iterdir()) == []
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = doctor.folder()
    assert found.state == "problem" and "cannot be written to" in found.text


def test_its_bounds_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["lab"]
    bounds = {need.name: need.specifier for need in map(Requirement, lines)}
    assert bounds["torch"] == Requirement(f"torch>={doctor.OLDEST_TORCH}").specifier
    for name, oldest in doctor.OLDEST_LAB.items():
        assert bounds[name] == Requirement(f"{name}>={oldest}").specifier
    excluded = ",".join(f"!={version}" for version in doctor.BROKEN_IPYKERNEL)
    assert bounds["ipykernel"] == Requirement(f"ipykernel{excluded}").specifier
