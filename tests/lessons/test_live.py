"""`LiveRun` in a real kernel: it starts only when asked, and leaves no thread however it ends."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("ipykernel")
from jupyter_client import KernelManager

OPEN = """
import threading, minilayup as lu
from minilayup import course, figures
task = lu.tasks.fashion_mnist("mlp")
def ours():
    return [t.name for t in threading.enumerate() if t.name.startswith("minilayup-")]
"""
MAKE = "live = figures.LiveRun(task, lu.Hogwild(2), seconds=60)\nlive"


class Kernel:
    """A kernel of its own, in which cells are run as a notebook runs them."""

    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def begin(self, code: str) -> str:
        return str(self.client.execute(code))

    def end(self, ident: str) -> tuple[str, str]:
        """(what the cell printed, the name of its error)."""
        printed, error = "", ""
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != ident:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream":
                printed += content["text"]
            elif kind == "error":
                error = content["ename"]
            elif kind == "status" and content["execution_state"] == "idle":
                return printed, error

    def run(self, code: str) -> str:
        printed, error = self.end(self.begin(code))
        assert not error, f"{error} in {code!r}: {printed}"
        return printed.strip()


@pytest.fixture
def kernel():
    kernel = Kernel()
    kernel.run(OPEN)
    kernel.run(MAKE)
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


UNDER_WAY = (
    "while not (live._losses and live._picture.value): live._over.wait(0.05); assert live.running, live._words.value"
)


def test_making_it_starts_nothing(kernel):
    assert kernel.run("print(ours())") == "[]"


def test_it_trains_while_the_cell_has_returned_and_stops_when_asked(kernel):
    kernel.run("live.start()")
    kernel.run(UNDER_WAY)
    assert "minilayup-live" in kernel.run("print(ours())")
    kernel.run("live._stop_button.click()")
    assert float(kernel.run("print(live.wait().samples)")) > 0
    assert kernel.run("print(ours())") == "[]"
    assert "samples" in kernel.run("print(live._words.value)")


def test_a_second_one_and_a_measuring_cell_refuse_while_it_runs(kernel):
    kernel.run("live.start()")
    kernel.run("other = figures.LiveRun(task, lu.SGD())")
    for code in ("other.start()", "live.start()", "course.alone()"):
        assert kernel.end(kernel.begin(code))[1] == "RuntimeError"
    kernel.run("other._start_button.click()")  # pressed, it says so instead
    assert "Press its Stop" in kernel.run("print(other._words.value)")
    kernel.run("live.stop(); course.alone(); other.start(); other.stop()")
    assert kernel.run("print(ours())") == "[]"


def test_running_its_cell_again_ends_it(kernel):
    kernel.run("first = live; live.start()")
    kernel.run(MAKE)
    assert kernel.run("print(first.running, first is live, ours())") == "False False []"


def test_an_interrupted_waiting_cell_ends_it(kernel):
    kernel.run("live.start()")
    kernel.run(UNDER_WAY)
    waiting = kernel.begin("live.wait()")
    while kernel.client.get_iopub_msg(timeout=60)["header"]["msg_type"] != "execute_input":
        pass
    kernel.manager.interrupt_kernel()
    assert kernel.end(waiting)[1] == "KeyboardInterrupt"
    assert kernel.run("print(ours(), live.result.samples > 0)") == "[] True"


def test_what_the_run_raises_is_shown_and_raised_where_it_is_waited_for(kernel):
    kernel.run("live = figures.LiveRun(task, lu.Hogwild(2), lr=1e6); live.start()")
    assert kernel.end(kernel.begin("live.wait()"))[1] == "Diverged"
    assert "Diverged" in kernel.run("print(live._words.value)")
    assert kernel.run("print(ours())") == "[]"


def test_the_end_of_the_kernel_ends_it(kernel):
    kernel.run("live.start()")
    kernel.run(UNDER_WAY)
    kernel.client.shutdown()
    deadline = time.monotonic() + 60
    while kernel.manager.is_alive() and time.monotonic() < deadline:
        time.sleep(0.05)  # a process of its own: there is nothing else to wait for
    assert not kernel.manager.is_alive()
