"""`LiveRun`: training in the background while the cell has returned, with a Start and a Stop button.

One thread trains and watches; ten times a second at most it writes to the widgets, and nothing else does.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.ticker import MaxNLocator

from .. import picture
from ..course.lesson import alone
from ..engine import Watch, train
from ..errors import number
from ..methods import Method
from ..result import Result
from ..rules import SGD
from ..tasks import Task
from . import jupyter

DRAW_EVERY = 0.5  # seconds: a picture takes the machine about 30 ms


class LiveRun:
    """A training run on real threads that the reader starts and stops.

    It never starts by itself.  It ends when its seconds are over, when Stop is pressed, when its cell is run again,
    when a cell that waits for it is interrupted, and when the kernel ends; it leaves no thread.

    Args:
        seconds: the longest it may take.
        lr, batch_size, slow, seed: as in `minilayup.train`.

    Attributes:
        result: what the run left, once it is over.
    """

    def __init__(
        self,
        task: Task,
        method: Method,
        *,
        seconds: float = 20.0,
        lr: float = 0.05,
        batch_size: int = 64,
        slow: Mapping[Any, float] | None = None,
        seed: int = 0,
    ) -> None:
        self.task, self.method, self.lr, self.batch_size, self.slow, self.seed = (
            task,
            method,
            lr,
            batch_size,
            slow,
            seed,
        )
        self.seconds = number("seconds", seconds, 0, open_low=True)
        self.result: Result | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._stop, self._over = threading.Event(), threading.Event()
        self._losses: list[tuple[float, float]] = []
        self._drawn = -DRAW_EVERY
        self._cell = _this_cell()
        self._make()

    # -- what the reader does ----------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether it is training now."""
        return self._thread is not None and not self._over.is_set()

    def start(self) -> None:
        """Begin to train; raises `RuntimeError` if this or another run is going on."""
        alone()
        self.result, self._error, self._losses, self._drawn = None, None, [], -DRAW_EVERY
        self._stop.clear()
        self._over.clear()
        self._thread = threading.Thread(target=self._train, name="minilayup-live")
        self._thread.start()
        shell = _shell()
        if shell is not None:
            shell.events.register("pre_run_cell", self._cell_runs)

    def stop(self) -> None:
        """End the run, if it is going on, and wait until its threads are gone."""
        self._stop.set()
        if self._thread is not None:
            self._over.wait()
            self._thread.join()

    def wait(self) -> Result:
        """Wait for the end and return the result; an interrupt stops the run.

        Raises: whatever the run raised; `RuntimeError` if it was never started.
        """
        if self._thread is None:
            raise RuntimeError("this run was not started: press Start, or call start()")
        try:
            while not self._over.wait(0.1):  # not join: up to Python 3.12 an interrupt in it marks the thread as ended
                pass
        except KeyboardInterrupt:
            self.stop()
            raise
        if self._error is not None:
            raise self._error
        assert self.result is not None
        return self.result

    # -- the thread --------------------------------------------------------------------------------------------------

    def _train(self) -> None:
        self._show(running=True)
        try:
            self.result = train(
                self.task, self.method, seconds=self.seconds, rule=SGD(lr=self.lr), batch_size=self.batch_size,
                slow=self.slow, seed=self.seed, progress=False, watch=self._watch,
            )  # fmt: skip
            self._say(self.result.summary())
        except BaseException as error:  # kept for `wait`, and shown: a thread has nobody to raise to
            self._error = error
            self._say(f"The run has ended early. {type(error).__name__}: {error}")
        finally:
            shell = _shell()
            if shell is not None and self._cell_runs in shell.events.callbacks["pre_run_cell"]:
                shell.events.unregister("pre_run_cell", self._cell_runs)
            self._show(running=False)
            self._over.set()

    def _watch(self, run: Watch) -> None:
        if self._stop.is_set() or not threading.main_thread().is_alive():
            run.stop()
        loss = run.loss()
        if loss is not None:
            self._losses.append((run.seconds, loss))
        self._progress.value = min(run.seconds, self.seconds)
        if run.seconds - self._drawn >= DRAW_EVERY and self._losses:
            self._drawn = run.seconds
            staleness = run.staleness()
            writes = max(1, sum(staleness.values()))
            mean = sum(tau * count for tau, count in staleness.items()) / writes
            words = f"{run.samples:,} samples, training loss {self._losses[-1][1]:.2f}, mean staleness {mean:.2f}"
            self._picture.value = self._draw(staleness, words)
            self._say(words)

    def _cell_runs(self, info: Any) -> None:
        """A cell is about to run: if it is the one that made this object, the run ends."""
        if info.raw_cell == self._cell[1] or (self._cell[0] and getattr(info, "cell_id", None) == self._cell[0]):
            self.stop()

    # -- the widgets -------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        import ipywidgets as w

        self._start_button = w.Button(description="Start", button_style="primary")
        self._stop_button = w.Button(description="Stop", disabled=True)
        self._start_button.on_click(self._pressed)
        self._stop_button.on_click(lambda _: self._stop.set())
        self._progress = w.FloatProgress(min=0, max=self.seconds, description="Progress")
        self._picture, self._words = w.HTML(), jupyter.words()
        title = w.HTML(f"<b>Live run: {html.escape(str(self.method))}, {self.seconds:g} s at most</b>")
        buttons = w.HBox([self._start_button, self._stop_button, self._progress])
        self._box = w.VBox([title, buttons, self._picture, self._words])
        self._box.add_class("minilayup-live")
        with picture.DRAWING, matplotlib.rc_context(picture.STYLE):
            self._canvas = picture.canvas(7.2, 2.6)
            left, right = self._canvas.subplots(1, 2, gridspec_kw={"bottom": 0.2, "left": 0.1, "right": 0.98})
            left.set(title="Training loss", xlabel="seconds", xlim=(0, self.seconds))
            right.set(title="Staleness τ of the writes", xlabel="writes between read and write", ylim=(0, 1))
            right.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            self._axes = left, right
            self._curve = picture.line(left, 0, marker="")
            self._bars = picture.line(right, 1)

    def _pressed(self, _: Any) -> None:
        try:
            self.start()
        except RuntimeError as error:
            self._say(str(error))

    def _show(self, running: bool) -> None:
        self._start_button.disabled, self._stop_button.disabled = running, not running

    def _say(self, words: str) -> None:
        self._words.value = html.escape(words)

    def _draw(self, staleness: Mapping[int, int], label: str) -> str:
        left, right = self._axes
        self._curve.set_data(*zip(*self._losses))
        left.set_ylim(0, 1.05 * max(loss for _, loss in self._losses))
        highest, writes = max(staleness, default=0), max(1, sum(staleness.values()))
        self._bars.set_data(range(highest + 1), [staleness.get(tau, 0) / writes for tau in range(highest + 1)])
        right.set_xlim(-0.5, highest + 0.5)
        return picture.render(self._canvas, f"Live run of {self.method}: {label}", prefix="live")

    def _ipython_display_(self) -> None:
        jupyter.show(self._box)


def _shell() -> Any:
    from IPython.core.getipython import get_ipython

    return get_ipython()


def _this_cell() -> tuple[str | None, str | None]:
    """(id, text) of the cell that is being run; (None, None) outside a notebook."""
    shell = _shell()
    if shell is None:
        return None, None
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId"), parent.get("content", {}).get("code")
