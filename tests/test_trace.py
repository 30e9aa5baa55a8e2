"""Every event is there, in order and counted; a trace that is off costs nothing; Perfetto can open what is saved."""

import json
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import minilayup as lu
from minilayup.models import mlp
from minilayup.run import Run
from minilayup.threads import Program
from minilayup.trace import Event, Trace
from minilayup.view import View

ROWS, BATCH, BATCHES = 64, 8, 12


def train(method: lu.Method, **options) -> lu.Result:
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(ROWS, 4, generator=random), torch.arange(ROWS) % 3
    model = partial(mlp, width=4, hidden=1, inputs=4, classes=3)  # two layers
    task = lu.Task(model, (x, y), (x, y), lu.tasks.classification_loss, lu.tasks.classification_accuracy)
    given = {"engine": "virtual", "samples": BATCHES * BATCH, "batch_size": BATCH, "progress": False}
    return lu.train(task, method, **{**given, **options})


def event(kind: str = "write", program: int = 0, layer: int = 0, read: int = 0, version: int = 1, at: float = 0):
    return Event(program, program, kind, layer, 0, read, version, at, at + 1)


METHODS = [lu.SGD(), lu.SyncSGD(2), lu.Hogwild(3), lu.PDASGD(1, 2), lu.LayUp(2, probability=1.0)]


@pytest.mark.parametrize("engine", ["virtual", "threads"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_events_are_complete_and_in_order(method: lu.Method, engine: str) -> None:
    trace = train(method, engine=engine).trace
    assert trace.dropped == 0
    events = trace.events()
    assert [e.start for e in events] == sorted(e.start for e in events)
    assert all(0 <= e.start <= e.end and 0 <= e.read <= e.version for e in events)
    for kind in ("forward", "backward", "write"):  # each batch, each layer, once
        assert Counter((e.batch, e.layer) for e in trace.events(kind)) == Counter(
            (batch, layer) for batch in range(BATCHES) for layer in range(2)
        )
        assert len(trace.events(kind)) == 2 * BATCHES
    assert {e.kind for e in events} <= {"forward", "backward", "write", "put"}
    assert len(trace.events("put")) == (2 * BATCHES if isinstance(method, lu.LayUp) else 0)
    for program in range(method.threads):  # one program does one thing after the other
        computed = [e for e in events if e.program == program and e.kind in ("forward", "backward")]
        assert all(before.end <= after.start for before, after in pairwise(computed))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_batch_goes_forward_backward_written(method: lu.Method) -> None:
    trace = train(method).trace
    for batch in range(BATCHES):
        forward, backward, write = ([e for e in trace.events(k) if e.batch == batch] for k in
                                    ("forward", "backward", "write"))  # fmt: skip
        assert [e.layer for e in forward] == [0, 1] and [e.layer for e in backward] == [1, 0]
        assert forward[-1].end <= backward[0].start
        assert all(w.start >= next(b for b in backward if b.layer == w.layer).end for w in write)
        reads = {e.layer: e.read for e in forward}
        assert all(w.read == reads[w.layer] for w in write)  # staleness counts from this batch's own read


def test_versions_rise_by_one_a_write_where_one_replica_is_shared() -> None:
    trace = train(lu.Hogwild(3)).trace
    for layer in range(2):
        assert [e.version for e in trace.events("write") if e.layer == layer] == list(range(1, BATCHES + 1))


def test_a_merge_raises_the_version() -> None:
    result = train(lu.LayUp(2, probability=1.0))
    writes = result.trace.events("write")
    assert result.merges == 2 * len(result.trace.events("put"))  # both sides of a pair average
    total = sum(max(e.version for e in result.trace.events() if (e.worker, e.layer) == (worker, layer))
                for worker in range(2) for layer in range(2))  # fmt: skip
    assert len(writes) < total <= len(writes) + result.merges
    alone = train(lu.LayUp(2, probability=0.0))
    assert alone.merges == 0 and alone.trace.max_staleness() == 0
    assert result.trace.max_staleness() > 0  # what the peer merged in between counts


def test_histograms_are_exact() -> None:
    trace = train(lu.Hogwild(3)).trace
    for layer in (None, 0, 1):
        taus = [e.staleness for e in trace.events("write") if layer in (None, e.layer)]
        assert trace.staleness(layer) == Counter(taus)
        assert trace.mean_staleness(layer) == pytest.approx(sum(taus) / len(taus))
        assert trace.max_staleness(layer) == max(taus)


def test_staleness_of_an_event() -> None:
    assert event(read=3, version=4).staleness == 0
    assert event(read=3, version=7).staleness == 3


def test_ring_is_bounded_and_histograms_are_not() -> None:
    trace = Trace(2, ["a", "b"], capacity=5)
    for k in range(20):
        trace.record(event(program=0, layer=k % 2, read=k, version=k + 1 + k % 3, at=k))
    trace.record(event("forward", program=1, at=100))
    assert len(trace.events()) == 6 and trace.dropped == 15
    assert [e.start for e in trace.events("write")] == [15, 16, 17, 18, 19]  # the newest
    assert trace.staleness() == Counter(k % 3 for k in range(20))
    assert sum(trace.staleness(0).values()) == 10


def test_an_empty_trace() -> None:
    trace = Trace(1, ["a"])
    assert trace.events() == [] and trace.dropped == 0 and trace.max_staleness() == 0
    assert trace.mean_staleness() != trace.mean_staleness()  # NaN


def test_off_records_nothing_and_changes_no_bit() -> None:
    on, off = train(lu.LayUp(2)), train(lu.LayUp(2), trace=False)
    assert off.trace.events() == [] and off.trace.dropped == 0 and not off.staleness()
    assert [p.score for p in on.points] == [p.score for p in off.points] and on.seconds == off.seconds
    pairs = zip(on.model.parameters(), off.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("on", [True, False])
def test_off_costs_no_hooks_on_real_threads(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    views: list[View] = []
    make = Run.view

    def view(*arguments, **options) -> View:
        views.append(make(*arguments, **options))
        return views[-1]

    monkeypatch.setattr(Run, "view", view)
    train(lu.Hogwild(2), engine="threads", trace=on)
    hooks = sum(len(m._forward_pre_hooks) for v in views for m in v.module.modules())
    assert len(views) == 2 and hooks == (4 if on else 0)  # a layer's read is stamped in a pre-hook


@pytest.mark.parametrize("method", [lu.PDASGD(1, 2), lu.LayUp(2, probability=1.0)], ids=str)
def test_saved_as_chrome_trace(method: lu.Method, tmp_path: Path) -> None:
    trace = train(method).trace
    path = trace.save(tmp_path / "trace.json")
    saved = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    rows = saved["traceEvents"]
    names = {row["tid"]: row["args"]["name"] for row in rows if row["ph"] == "M" and row["name"] == "thread_name"}
    assert names == {p.index: f"worker {p.worker} {p.group}" for p in trace.programs}
    assert len(set(names.values())) == method.threads  # rows that can be told apart
    drawn = [row for row in rows if row["ph"] == "X"]
    assert len(drawn) == len(trace.events())
    for row in drawn:
        assert {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"} == set(row)
        assert row["tid"] in names and isinstance(row["pid"], int)
        assert row["ts"] >= 0 and row["dur"] >= 0 and row["args"]["read"] <= row["args"]["version"]
    kept = trace.events()[0]
    assert (drawn[0]["ts"], drawn[0]["dur"]) == (kept.start * 1e6, (kept.end - kept.start) * 1e6)  # in microseconds
    assert drawn[0]["name"].split()[0] == kept.kind and drawn[0]["name"].endswith(trace.layers[kept.layer])


def test_save_without_a_layer_and_without_events(tmp_path: Path) -> None:
    trace = Trace(1, ["a"])
    trace.programs = [Program(0, lambda: None)]
    assert len(json.loads(trace.save(tmp_path / "a.json").read_text())["traceEvents"]) == 1
    trace.record(event("forward", layer=-1))
    assert json.loads(trace.save(str(tmp_path / "a.json")).read_text())["traceEvents"][1]["name"] == "forward"
