"""Lesson 06: how many forward and backward threads, how large a pool, and on how many cores.

Three things are held against each other: `ideal`, a closed form; `virtual_run`, PD-ASGD's own programs on the virtual
clock; and runs on real threads, which ``bench/lessons/lesson_06.py`` has stored.
"""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from .. import picture
from ..course.lesson import stored
from ..table import Table
from .controls import Number
from .figure import Data, Figure, Prediction
from .forward_backward import VirtualRun, ideal, limits, virtual_run

BACKWARDS = range(1, 7)
SLACKS = [0, 4, 8]
ROWS = {"speed_up": "speed-up", "staleness": "staleness (writes)", "mb": "activations (MB)"}


class RatioMachine(Figure):
    """Throughput against backward threads; throughput, staleness and memory against the pool's slack.

    Args:
        t_f, t_b: milliseconds of a forward and of a backward pass on your machine; default: the stored ones.
    """

    title = "Forward threads, backward threads and the pool between them"
    finding = (
        "More backward threads are faster only until the forward threads or the cores are the limit; the pool of views "
        "sets staleness and memory, and leaves the speed as it is."
    )
    size = (7.2, 5.0)

    def __init__(self, t_f: float | None = None, t_b: float | None = None) -> None:
        self._stored = stored("lesson06")
        cnn = self._stored["cnn"]
        self._times = round(cnn["forward_ms"], 2), round(cnn["backward_ms"], 2)
        forward, backward = (round(x or y, 2) for x, y in zip((t_f, t_b), self._times))
        super().__init__(
            {
                "forward": Number("Forward threads F", 1, 3, 1, 1),
                "backward": Number("Backward threads B", 1, BACKWARDS[-1], 1, 2),
                "slack": Number("Slack of the pool", 0, SLACKS[-1], 1, 1),
                "cores": Number("Cores", 1, 12, 1, 2),
                "t_f": Number("Forward pass", 0.5, 20.0, 0.01, forward, "ms"),
                "t_b": Number("Backward pass", 0.5, 40.0, 0.01, backward, "ms"),
            },
            Prediction(
                f"One forward thread, two cores; a forward pass takes {forward:g} ms, a backward pass {backward:g} ms. "
                "You replace one backward thread by six. How many times as many batches a second are trained?",
                Number("Throughput with 6, over that with 1", 0.5, 6.0, 0.1, 3.0, "times"),
                {"forward": 1, "backward": 6, "cores": 2},
                lambda data: round(data["speed_up"] / data["closed"]["speed_up"][0], 1),
            ),
        )
        for threads in (1, 2, 3):  # every virtual run that the first three controls ask for
            for slack in range(SLACKS[-1] + 1):
                for backward_threads in BACKWARDS:
                    self._run(threads, backward_threads, slack, forward, backward)

    def _run(self, forward: int, backward: int, slack: int, t_f: float, t_b: float) -> VirtualRun:
        """In units of the forward pass, so that equal ratios of the times are one run."""
        return virtual_run(forward, backward, slack, 1.0, round(t_b / t_f, 3))

    def model(self, *, forward: int, backward: int, slack: int, cores: int, t_f: float, t_b: float) -> Data:
        """All three at these settings, along B and along the slack.  Speed-ups are over one thread for both passes."""
        here = ideal(forward, backward, t_f, t_b, slack, cores)
        run = self._run(forward, backward, slack, t_f, t_b)
        speed, one = run.speed(cores), t_f + t_b
        mb = self._stored["cnn"]["batch_mb"]
        data: Data = {
            "limit": here.limit,
            "rate": 1000 * here.rate,
            "speed_up": here.rate * one,
            "in_flight": here.in_flight,
            "pool": forward + backward + slack,
            "staleness": here.staleness,
            "mb": here.in_flight * mb,
            "allowed": {part: rate * one for part, rate in limits(forward, backward, t_f, t_b, slack, cores).items()},
            "computes": {kind: share * speed for kind, share in run.busy.items()},
            "waits_for_core": {kind: share * (1 - speed) for kind, share in run.busy.items()},
            "waits": {kind: 1 - share for kind, share in run.busy.items()},
            "virtual_speed_up": run.speed_up(cores),
            "virtual_staleness": run.staleness,
            "virtual_in_flight": run.in_flight,
            "closed": {"speed_up": [ideal(forward, b, t_f, t_b, slack, cores).rate * one for b in BACKWARDS]},
        }
        runs = [self._run(forward, b, slack, t_f, t_b) for b in BACKWARDS]
        data["virtual"] = {"speed_up": [r.speed_up(cores) for r in runs]}
        forms = [ideal(forward, backward, t_f, t_b, s, cores) for s in SLACKS]
        runs = [self._run(forward, backward, s, t_f, t_b) for s in SLACKS]
        data["closed_slack"] = {
            "speed_up": [form.rate * one for form in forms],
            "staleness": [form.staleness for form in forms],
            "mb": [form.in_flight * mb for form in forms],
        }
        data["virtual_slack"] = {
            "speed_up": [r.speed_up(cores) for r in runs],
            "staleness": [r.staleness for r in runs],
            "mb": [r.in_flight * mb for r in runs],
        }
        data |= self._measured(forward, backward, (t_f, t_b) == self._times)
        return data

    def _measured(self, forward: int, backward: int, same_times: bool) -> Data:
        """The stored real runs that belong to the picture: none, if the times are not those of the real passes."""
        cells = list(self._stored["real"]["cells"].values()) if same_times else []
        timed = [cell for cell in cells if "speed_up" in cell]  # there was a quiet moment to time it in
        found: Data = {}
        for name, along, fixed in (("measured", "backward", "slack"), ("measured_slack", "slack", "backward")):
            at = {"forward": forward, fixed: 1 if fixed == "slack" else backward}
            for part, some in (("speed", timed), ("counts", cells)):
                here = [cell for cell in some if at.items() <= cell.items()]
                keys = ("speed_up", "low", "high") if part == "speed" else ("staleness", "mb")
                found.setdefault(name, {})[part] = {key: [cell[key] for cell in here] for key in (along, *keys)}
        return found

    def draw(self, canvas: SubFigure) -> None:
        """Left: throughput against B, and what the threads do.  Right: three rows against the slack."""
        self._top = canvas.add_axes((0.085, 0.46, 0.42, 0.46))
        lanes = canvas.add_axes((0.155, 0.115, 0.35, 0.15))
        self._rows = {
            "speed_up": canvas.add_axes((0.62, 0.685, 0.36, 0.19)),
            "staleness": canvas.add_axes((0.62, 0.40, 0.36, 0.19)),
            "mb": canvas.add_axes((0.62, 0.115, 0.36, 0.19)),
        }
        self._draw_top()
        self._draw_lanes(lanes)
        self._artists: dict[str, Any] = {}
        self._along = canvas.text(0.56, 0.955, "", fontweight="bold", va="baseline")
        for name, axes in self._rows.items():
            axes.set_xlim(-0.6, SLACKS[-1] + 0.6)
            axes.set_xticks(SLACKS if name == "mb" else [])  # the lowest row's are the others', too
            axes.yaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
            self._artists[name] = self._marks(axes)
        self._rows["mb"].set_xlabel("slack of the pool (views)")

    def _marks(self, axes: Any) -> dict[str, Any]:
        """Closed form, virtual runs, real runs and their spread, and a ring around the setting."""
        spread = axes.plot([], [], "-", color=picture.COLOURS[1], linewidth=1.2)[0]
        return {
            "closed": picture.line(axes, 0, "closed form", marker="", linewidth=1.8),
            "virtual": picture.line(axes, 2, "virtual clock", linestyle="", markersize=6, markerfacecolor="none"),
            "real": picture.line(axes, 1, "real threads, 2 cores", linestyle="", markersize=5),
            "spread": spread,
            "here": axes.plot([], [], "o", color=picture.INK, markersize=13, markerfacecolor="none")[0],
        }

    def _draw_top(self) -> None:
        axes = self._top
        self._curve = self._marks(axes)
        axes.set(xlabel="backward threads B", ylabel="speed-up over one thread", xlim=(0.6, 6.4))
        axes.set_xticks(list(BACKWARDS))
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        self._core_line = axes.plot([0.6, 6.4], [0, 0], color=picture.COLOURS[4], linewidth=1, linestyle=":")[0]
        self._forward_line = axes.plot([0.6, 6.4], [0, 0], color=picture.COLOURS[4], linewidth=1, linestyle=":")[0]
        above: dict[str, Any] = {"xytext": (0, 8), "textcoords": "offset points", "ha": "right", "fontsize": 9}
        self._core_word = axes.annotate("", (6.4, 0), **above)
        self._forward_word = axes.annotate("", (6.4, 0), **above)
        axes.legend(
            handles=[self._curve[kind] for kind in ("closed", "virtual", "real")],
            loc="upper left", fontsize=9, handlelength=1.4, labelspacing=0.25, borderpad=0, borderaxespad=0.2,
        )  # fmt: skip

    def _draw_lanes(self, axes: Any) -> None:
        self._bars = [
            picture.Bars(axes, 0, "computes"),
            picture.Bars(axes, 3, "waits for a core"),
            picture.Bars(axes, 4, "waits for work", hollow=True),
        ]
        axes.set(xlim=(0, 100), ylim=(1.6, -0.6), xlabel="% of a thread's time")
        axes.set_xticks([0, 50, 100])
        axes.set_yticks([0, 1], ["forward", "backward"])
        axes.tick_params(left=False)
        axes.legend(
            ncols=3, loc="lower left", bbox_to_anchor=(-0.25, 1.0), fontsize=9, handlelength=1.0,
            columnspacing=0.8, handletextpad=0.4, borderpad=0,
        )  # fmt: skip

    def update(self, data: Data) -> None:
        """Move everything."""
        forward, backward, slack = (int(self.controls[name].value) for name in ("forward", "backward", "slack"))
        self._top.set_title(f"{forward} forward : B backward, slack {slack}")
        closed, virtual, real = data["closed"]["speed_up"], data["virtual"]["speed_up"], data["measured"]["speed"]
        self._fill(self._curve, list(BACKWARDS), closed, virtual, real["backward"], real["speed_up"])
        self._curve["spread"].set_data(*_whiskers(real["backward"], real["low"], real["high"]))
        self._curve["here"].set_data([backward], [data["speed_up"]])
        height = 1.45 * max(*closed, *virtual, *real["high"], 1.0)
        self._top.set_ylim(0, height)
        self._limits(data, height)
        for name, axes in self._rows.items():
            closed, virtual = data["closed_slack"][name], data["virtual_slack"][name]
            real = data["measured_slack"]["speed" if name == "speed_up" else "counts"]
            self._fill(self._artists[name], SLACKS, closed, virtual, real["slack"], real[name])
            if name == "speed_up":
                self._artists[name]["spread"].set_data(*_whiskers(real["slack"], real["low"], real["high"]))
            self._artists[name]["here"].set_data([slack], [data[name]])
            axes.set_ylim(0, 1.25 * max(*closed, *virtual, *real[name], 0.1))
            axes.set_title(f"{ROWS[name]}: × {virtual[-1] / virtual[0]:.1f}", fontweight="normal")
        self._along.set_text(f"{forward} forward : {backward} backward, slack 0 to 8")
        starts = [0.0, 0.0]
        for bars, part in zip(self._bars, ("computes", "waits_for_core", "waits")):
            shares = [100 * data[part][kind] for kind in ("forward", "backward")]
            ends = [start + share for start, share in zip(starts, shares)]
            bars.set([0, 1], starts, ends)
            starts = ends

    def _fill(
        self, marks: dict[str, Any], xs: list[int], closed: list[float], virtual: list[float], at: list[int], real: Any
    ) -> None:
        marks["closed"].set_data(xs, closed)
        marks["virtual"].set_data(xs, virtual)
        marks["real"].set_data(at, real)

    def _limits(self, data: Data, height: float) -> None:
        """Lines for the cores and the forward threads, where they are in the picture."""
        cores, forward = data["allowed"]["the cores"], data["allowed"]["the forward threads"]
        numbers = int(self.controls["cores"].value), int(self.controls["forward"].value)
        words = f"limit of {numbers[0]} core{'s' * (numbers[0] > 1)}", f"limit of {numbers[1]} forward"
        lines = (self._core_line, self._core_word, cores), (self._forward_line, self._forward_word, forward)
        for (line, word, at), text in zip(lines, words):
            inside = at < 0.72 * height
            line.set_visible(inside)
            word.set_visible(inside)
            line.set_ydata([at, at])
            word.xy = (6.4, at)
            word.set_text(text)
        if abs(cores - forward) < 0.1 * height:  # one text would cover the other
            self._forward_word.set_visible(False)

    def read(self, data: Data) -> str:
        """Throughput and what limits it; what is in flight; what the threads do."""
        forward, backward, cores = (int(self.controls[name].value) for name in ("forward", "backward", "cores"))
        work = " and ".join(f"{kind} threads compute {share:.0%}" for kind, share in data["computes"].items())
        return (
            f"{forward} forward : {backward} backward on {cores} core{'s' * (cores > 1)} train "
            f"{data['rate']:.0f} batches/s, {data['speed_up']:.2f} times one thread; the limit is {data['limit']}. "
            f"{data['in_flight']:.1f} of at most {data['pool']} batches are in flight: staleness "
            f"{data['staleness']:.1f}, {data['mb']:.1f} MB of activations; {work} of the time."
        )

    def table(self) -> Table:
        """A row for each number of backward threads."""
        data, now = self.data(), self.settings
        timed = data["measured"]["speed"]
        real = dict(zip(timed["backward"], timed["speed_up"]))
        rows = []
        for k, b in enumerate(BACKWARDS):
            form = ideal(now["forward"], b, now["t_f"], now["t_b"], now["slack"], now["cores"])
            run = self._run(now["forward"], b, now["slack"], now["t_f"], now["t_b"])
            rows.append(
                [
                    f"{now['forward']}F : {b}B", f"{data['closed']['speed_up'][k]:.2f}",
                    f"{data['virtual']['speed_up'][k]:.2f}", f"{real[b]:.2f}" if b in real else "not measured",
                    form.limit, f"{form.staleness:.1f}", f"{run.staleness:.1f}",
                    f"{form.in_flight * self._stored['cnn']['batch_mb']:.1f}",
                ]
            )  # fmt: skip
        title = f"Slack {now['slack']}, {now['cores']} cores, passes of {now['t_f']:g} and {now['t_b']:g} ms"
        columns = [
            "ratio", "speed-up, closed form", "virtual clock", "real threads, 2 cores, slack 1", "limit",
            "staleness, closed form", "virtual clock", "activations, MB",
        ]  # fmt: skip
        return Table(title, columns, rows)


def _whiskers(xs: list[float], lows: list[float], highs: list[float]) -> tuple[list[float], list[float]]:
    """One line from low to high at each x, broken in between."""
    at = [value for x in xs for value in (x, x, math.nan)]
    return at, [value for low, high in zip(lows, highs) for value in (low, high, math.nan)]
