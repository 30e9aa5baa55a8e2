"""Waiting, ending and failing, on both clocks: always an answer, never a thread left."""

import json
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import pytest
import torch

import minilayup as lu
from minilayup.clocks import RealClock, VirtualClock
from minilayup.models import mlp
from minilayup.threads import Clock, Deadlock, Program, ProgramError

CLOCKS = [RealClock, VirtualClock]
ENGINES = ["threads", lu.Virtual(), lu.Virtual(jitter=0)]


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("minilayup")]


@pytest.fixture(autouse=True)
def no_thread_left():
    yield
    assert ours() == []


def go(clock: Clock, *bodies) -> None:
    clock.run([Program(i, body, index=i) for i, body in enumerate(bodies)])


def tiny_task(rows: int = 512, seed: int = 0) -> lu.Task:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 8, generator=random)
    y = (x @ torch.randn(8, 3, generator=random)).argmax(1)
    return lu.Task(
        partial(mlp, width=8, hidden=1, inputs=8, classes=3),
        (x, y),
        (x[:64], y[:64]),
        lu.tasks.classification_loss,
        lu.tasks.classification_accuracy,
    )


METHODS = [
    lu.SGD(),
    lu.SyncSGD(3),
    lu.Hogwild(3),
    lu.PDASGD(1, 2),
    lu.PDASGD(3, 2, slack=0),
    lu.LayUp(3),
]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_queue_closes_after_its_last_producer_and_is_drained(clock):
    c = clock()
    queue, got = c.queue(producers=2), [[], []]

    def producer(k):
        for item in range(20):
            c.sleep(0.0001 * (k + 1))
            queue.put(10 * item + k)
        queue.close()

    def consumer(k):
        got[k].extend(queue)

    go(c, *(partial(producer, k) for k in (0, 1)), *(partial(consumer, k) for k in (0, 1)))
    assert sorted(got[0] + got[1]) == sorted(10 * item + k for item in range(20) for k in (0, 1))
    with pytest.raises(EOFError):
        queue.get()


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_barrier_shrinks_when_a_program_ends(clock):
    c = clock()
    barrier, passed = c.barrier(3), []

    def body(k):
        for turn in range(3 - k):  # program 2 comes once, program 0 three times
            barrier.wait(lambda turn=turn: passed.append(turn))
            c.sleep(0.001)

    go(c, *(partial(body, k) for k in range(3)))
    assert passed == [0, 1, 2]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_deadlock_is_an_error(clock):
    c = clock()
    one, two = c.queue(), c.queue()
    with pytest.raises(ProgramError, match="waits for another") as caught:
        go(c, one.get, two.get)
    assert isinstance(caught.value.__cause__, Deadlock)


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_program_that_ends_and_leaves_another_waiting_is_a_deadlock_too(clock):
    c = clock()
    queue = c.queue()
    with pytest.raises(ProgramError) as caught:
        go(c, queue.get, lambda: c.sleep(0.02))
    assert isinstance(caught.value.__cause__, Deadlock)


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_first_exception_is_raised_and_stops_the_others(clock):
    c = clock()
    queue = c.queue()

    def fails():
        c.sleep(0.01)
        raise KeyError("mine")

    def waits():
        queue.get()

    def works():
        while True:
            c.sleep(0.001)

    with pytest.raises(ProgramError, match=r"worker 0, worker program 0.*KeyError.*mine") as caught:
        go(c, fails, waits, works)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("clock", CLOCKS)
def test_messages_on_their_way_arrive_at_a_normal_end_and_failing_ones_are_told(clock):
    c, got = clock(), []

    def sends():
        c.call_later(0.05, lambda: got.append("late"))
        c.call_later(0.0, lambda: got.append("early"))

    go(c, sends)
    assert got == ["early", "late"]

    c = clock()
    with pytest.raises(ProgramError, match="a message: ZeroDivisionError"):
        go(c, lambda: (c.call_later(0.0, lambda: 1 / 0), c.sleep(0.05)))


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_failing_tick_ends_the_run(clock):
    c = clock()

    def forever():
        while True:
            c.sleep(0.001)

    with pytest.raises(ZeroDivisionError):
        c.run([Program(0, forever)], tick=lambda: 1 / 0)


def test_virtual_time_goes_to_whoever_is_behind_and_first_come_first_served_on_ties():
    c, seen = VirtualClock(), []

    def body(name, step):
        for _ in range(3):
            seen.append((name, c.now()))
            c.sleep(step)

    go(c, partial(body, "a", 2.0), partial(body, "b", 3.0))
    assert seen == [("a", 0.0), ("b", 0.0), ("a", 2.0), ("b", 3.0), ("a", 4.0), ("b", 6.0)]
    assert c.ended == 9.0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_prime_budgets_give_exactly_the_batches_they_ask_for(method, engine):
    result = lu.train(tiny_task(), method, samples=1009, batch_size=16, engine=engine, progress=False)
    whole = method.workers if isinstance(method, lu.SyncSGD) else 1
    batches = -(-1009 // (16 * whole)) * whole
    assert result.samples == 16 * batches
    assert result.updates == batches // whole
    writes = sum(result.trace.staleness().values())
    assert writes == batches * len(result.trace.layers)


@pytest.mark.parametrize("engine", [lu.Virtual(), "threads"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_budgets_of_seconds_and_of_a_target(method, engine):
    virtual = engine != "threads"
    seconds = 100.0 if virtual else 0.2
    result = lu.train(tiny_task(), method, seconds=seconds, batch_size=16, engine=engine, progress=False)
    assert result.seconds >= seconds
    result = lu.train(
        tiny_task(), method, target=0.7, samples=10**6, batch_size=16, engine=engine, evaluate_every=320, progress=False
    )
    assert result.evaluated == "on the fly"
    assert max(point.score for point in result.points) >= 0.7 and result.samples < 10**6


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("engine", ["threads", lu.Virtual()])
def test_an_exception_in_the_loss_names_worker_program_and_step(method, engine):
    task = tiny_task()
    calls = [0]

    def loss(module, batch):
        calls[0] += 1
        if calls[0] > 20:
            raise ValueError("spoiled")
        return lu.tasks.classification_loss(module, batch)

    task = lu.Task(task.model, task.train, task.test, loss)
    with pytest.raises(ProgramError, match=r"worker \d, \w+ program \d, step \d+: ValueError: spoiled"):
        lu.train(task, method, samples=10_000, batch_size=16, engine=engine, progress=False)


@dataclass(frozen=True)
class FailsInHook(lu.Method):
    """Raises inside an autograd hook, in the middle of a backward pass."""

    workers: int = 2

    def programs(self, run):
        replica = run.replica()

        def on_layer(view, layer, grads):
            run.write(view, layer, grads)
            if view.batch.index == 7:
                raise RuntimeError("in the hook")

        def worker(i):
            view = run.view(replica, on_layer)
            for batch in run.batches(i):
                view.backward(view.forward(batch))

        return [Program(i, partial(worker, i)) for i in range(self.workers)]


@pytest.mark.parametrize("engine", ["threads", lu.Virtual()])
def test_an_exception_inside_a_hook_comes_out_of_train(engine):
    with pytest.raises(ProgramError, match=r"step 7: RuntimeError: in the hook"):
        lu.train(tiny_task(), FailsInHook(), samples=10_000, batch_size=16, engine=engine, progress=False)


@pytest.mark.parametrize("engine", ["threads", lu.Virtual()])
def test_a_divergence_says_where_and_what_to_try(engine):
    with pytest.raises(lu.Diverged, match=r"worker \d.*learning rate 1e\+12.*smaller learning rate"):
        lu.train(tiny_task(), lu.Hogwild(2), samples=10_000, batch_size=16, rule=lu.rules.SGD(lr=1e12), engine=engine,
                 progress=False)  # fmt: skip


@pytest.mark.parametrize("engine", ["threads", lu.Virtual()])
def test_the_process_is_as_it_was_after_a_run(engine):
    torch.manual_seed(5)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    lu.train(tiny_task(), lu.LayUp(2), samples=640, batch_size=16, engine=engine, progress=False)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("clock", [lu.RealClock, lu.VirtualClock])
@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_clock_leaves_torch_as_it_found_it(clock, ends):
    def body():
        torch.rand(3)
        if ends == "badly":
            raise ZeroDivisionError

    torch.manual_seed(5)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with nullcontext() if ends == "well" else pytest.raises(lu.ProgramError):
        clock().run([lu.Program(0, body), lu.Program(1, body, index=1)])
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_a_thousand_virtual_workers():
    result = lu.train(tiny_task(), lu.LayUp(1024), samples=16 * 2048, batch_size=16, engine=lu.Virtual(), trace=False,
                      evaluate_every=16 * 2048, progress=False)  # fmt: skip
    assert result.updates == 2048 and result.seconds < 3 * 3.0


def test_threads_that_cannot_be_started_leave_none_behind(monkeypatch):
    start, started = threading.Thread.start, []

    def third_fails(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", third_fails)
    for clock in (RealClock(), VirtualClock()):
        started.clear()
        with pytest.raises(RuntimeError, match="can't start"):
            go(clock, *[lambda clock=clock: clock.sleep(0.01)] * 4)


INTERRUPTED = """
import json, sys, threading
import minilayup as lu
sys.path.insert(0, {tests!r})
from test_clocks import tiny_task
engine = {{"virtual": lu.Virtual(), "threads": "threads"}}[sys.argv[1]]
method = {{"layup": lu.LayUp(3), "pd": lu.PDASGD(1, 2), "sync": lu.SyncSGD(3)}}[sys.argv[2]]
seen = []
def loss(module, batch):
    if not seen:
        seen.append(1)
    elif len(seen) == 1:
        seen.append(2)
        print("started", flush=True)
    return lu.tasks.classification_loss(module, batch)
task = tiny_task()
try:
    lu.train(lu.Task(task.model, task.train, task.test, loss), method, seconds=1e9, batch_size=16, engine=engine,
             progress=False)
except KeyboardInterrupt:
    print(json.dumps([t.name for t in threading.enumerate()]), flush=True)
"""


@pytest.mark.parametrize("method", ["layup", "pd", "sync"])
@pytest.mark.parametrize("engine", ["threads", "virtual"])
def test_ctrl_c_ends_everything(engine, method):
    script = INTERRUPTED.format(tests=str(__import__("pathlib").Path(__file__).parent))
    process = subprocess.Popen([sys.executable, "-c", script, engine, method], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert json.loads(out) == ["MainThread"]
