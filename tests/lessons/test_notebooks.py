"""Every notebook: its structure, its numbers, and that it runs from top to bottom, twice, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re

import pytest
from lessons import NOTEBOOKS, ROOT

from minilayup.course import notebook

nbformat = pytest.importorskip("nbformat")

GUARD = """
import socket as _socket
_connect = _socket.socket.connect
def _only_here(self, address):
    if self.family in (_socket.AF_INET, _socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise PermissionError(f"a lesson may not reach the network: {address}")
    return _connect(self, address)
_socket.socket.connect = _only_here
"""
LEFT = """
import threading as _threading, multiprocessing as _processes
_left = [t.name for t in _threading.enumerate() if t.name.startswith("minilayup")]
assert not _left, f"threads are left: {_left}"
assert not _processes.active_children()
_peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 2**20  # this process alone
assert _peak < 2, f"{_peak:.2f} GiB"
import time as _time  # the processor's, which other programs do not change: 15 s on two cores, twice
assert _time.process_time() < 60, f"{_time.process_time():.0f} s of processor time"
"""

names = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@names
def test_its_structure_and_its_numbers(path):
    assert notebook.faults(path) == []


@names
def test_it_is_a_valid_notebook(path):
    nbformat.validate(nbformat.read(path, as_version=4))


@names
def test_its_picture_is_there_and_speaks(path):
    text = json.loads(path.read_text("utf-8"))
    title = notebook.source(text["cells"][0])
    found = re.search(r"!\[([^\]]+)\]\((figures/[\w.]+)\)", title)
    assert found and len(found[1]) > 40, "an alt text that states the finding"
    svg = (path.parent / found[2]).read_text("utf-8")
    assert 'role="img"' in svg and "aria-label" in svg


@names
def test_links_lead_somewhere(path):
    text = path.read_text("utf-8")
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", text):
        assert (path.parent / target.replace("\\", "")).exists(), target


@names
def test_it_runs_twice_in_one_kernel_and_leaves_nothing(path):
    nbclient = pytest.importorskip("nbclient")
    book = nbformat.read(path, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    kernel = {**os.environ, "MINILAYUP_FAST": "1"}
    client = nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(ROOT / "notebooks")}})
    with client.setup_kernel(env=kernel):
        run(client, nbformat.v4.new_code_cell(GUARD))
        for _ in range(2):
            for cell in code:
                run(client, cell)
            run(client, nbformat.v4.new_code_cell(LEFT))
    said = [output.get("text", "") for cell in code for output in cell.outputs]
    assert sum("not tried yet" in text for text in said) == 3, "three untouched stubs, and each is told so"


def run(client, cell):
    """Run one cell as if it were the notebook's last; any error of it is raised."""
    client.nb.cells.append(cell)
    try:
        client.execute_cell(cell, len(client.nb.cells) - 1)
    finally:
        client.nb.cells.pop()
    for output in cell.outputs:
        assert output.get("name") != "stderr" or "Traceback" not in output.text, output.text


# -- the rules themselves ---------------------------------------------------------------------------------------------


def cells(**changes):
    made = {}
    for id, kind, words in notebook.SECTIONS:
        id, words = id.format(n="00"), words.format(n="00")
        made[id] = {"cell_type": kind, "id": id, "metadata": {}, "source": words}
        if kind == "code":
            made[id] |= {"outputs": [], "execution_count": None}
    made["questions"]["source"] += "<details></details>" * 3
    for id, change in changes.items():
        made[id.replace("_", "-")] |= change
    return list(made.values())


def write(folder, found, metadata=None):
    path = folder / "00_x.ipynb"
    book = {"cells": found, "metadata": metadata or {"kernelspec": {"name": "python3"}}, "nbformat": 4}
    path.write_text(json.dumps(book), encoding="utf-8")
    return path


def test_a_notebook_as_it_should_be_has_no_fault(tmp_path):
    assert notebook.faults(write(tmp_path, cells())) == []


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"step": {"outputs": [{}]}}, "stored"),
        ({"title": {"source": "# 00 · ![](x.svg)"}}, "no alt text"),
        ({"title": {"source": '# 00 · <img src="x">'}}, "no alt text"),
        ({"title": {"source": "# 01 · "}}, "does not contain"),
        ({"step": {"source": "answer_00_1"}}, "uses a reader's answer"),
        ({"summary": {"source": "## Summary 1<!-- =nothing a .1f -->"}}, "source is not there"),
        ({"summary": {"source": "## Summary x<!-- =race_rates a .1f -->"}}, "does not follow a number"),
        ({"summary": {"source": "## Summary 7.3<!-- =exchanges test.a .1f -->"}}, "not there"),
        ({"questions": {"source": "## Questions"}}, "three answers"),
        ({"step_text": {"cell_type": "code", "outputs": [], "execution_count": None}}, "not a markdown cell"),
        ({"step_text": {"id": "other"}}, "missing"),
    ],
)
def test_each_fault_is_found(tmp_path, changes, words):
    found = notebook.faults(write(tmp_path, cells(**changes)))
    assert any(words in fault for fault in found), found


def test_the_order_the_kernel_and_stored_widgets_are_found(tmp_path):
    turned = cells()
    turned[0], turned[1] = turned[1], turned[0]
    assert notebook.faults(write(tmp_path, turned)) == ["cells are not in order"]
    found = notebook.faults(write(tmp_path, cells(), {"widgets": {}}))
    assert found == ["kernelspec is not python3", "widget state is stored"]


def test_numbers_are_written_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(notebook, "stored", lambda name: {"a": {"b": [0.5, -2.25]}, "c": 12345})
    text = (
        "It takes 9.9<!-- =x a.b.1 .1f -->, 1 %<!-- =x a.b.0 .0% -->, **1**<!-- =x c , --> or 1<!-- =x c , --> times."
    )
    filled = notebook.fill(text)
    assert (
        "takes −2.2<!-- =x a.b.1 .1f -->" in filled and "50 %<!--" in filled and "12,345<!-- =x c , --> times" in filled
    )
    assert notebook.fill(filled) == filled
    path = write(tmp_path, cells(summary={"source": "## Summary 1<!-- =x c , -->"}))
    assert notebook.refresh(path) and not notebook.refresh(path)
