"""A virtual run is a function of its seed: the same bits again, here and in another process under load."""

import hashlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import minilayup as lu
from minilayup.gossip import EXCHANGES
from minilayup.rules import SGD, AdamW, Cosine


def model(dropout: float = 0.3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(dropout), nn.Linear(12, 3))


def task(skew: float = 0.0) -> lu.Task:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(600, 8, generator=random)
    y = (x @ torch.randn(8, 3, generator=random)).argmax(1)
    return lu.Task(
        model, (x, y), (x[:64], y[:64]), lu.tasks.classification_loss, lu.tasks.classification_accuracy, skew=skew
    )


LINK = lu.Link(latency=0.4, bandwidth=2_000, loss=0.2)
BY_LAYER = lu.Virtual(jitter=0.3, per="layer")
CASES = {
    "sgd": dict(method=lu.SGD(), rule=AdamW(0.01)),
    "sync": dict(method=lu.SyncSGD(3), link=lu.Link(latency=0.1, bandwidth=1e4)),
    "hogwild": dict(method=lu.Hogwild(3), slow={1: 2.5}, schedule=Cosine(16 * 50)),
    "hogwild, layer": dict(method=lu.Hogwild(4, update="layer"), engine=BY_LAYER, rule=SGD(0.05, momentum=0.9)),
    "pd": dict(method=lu.PDASGD(1, 2), engine=BY_LAYER, micro_batches=2),
    "pd, many": dict(method=lu.PDASGD(3, 4, slack=3, weights="stashed"), slow={"backward": 1.5}),
    "layup, by layer": dict(method=lu.LayUp(5, peer="by-rate", topology="ring", draw="layer"), skewed=0.3),
    **{
        f"layup, {name}": dict(method=lu.LayUp(4, exchange=name, probability=0.9), link=LINK, engine=BY_LAYER)
        for name in EXCHANGES
    },
    "layup, returned": dict(
        method=lu.LayUp(4, exchange="push-sum", topology="exponential"),
        link=lu.Link(latency=0.2, loss=0.5, lost="returned"),
    ),
    "seconds": dict(method=lu.LayUp(3), samples=None, seconds=60.0),
    "target": dict(method=lu.Hogwild(2), samples=16 * 2_000, target=0.6, evaluate_every=160),
}


def fingerprint(name: str, seed: int = 0) -> dict[str, str]:
    """Digests of the weights, the curve and the events of one case."""
    case = {"samples": 16 * 50, "rule": SGD(0.05), "engine": lu.Virtual(), **CASES[name]}
    result = lu.train(
        task(case.pop("skewed", 0.0)), case.pop("method"), **case, batch_size=16, seed=seed, progress=False
    )
    digest = hashlib.sha256()
    for key, value in result.model.state_dict().items():
        digest.update(key.encode() + value.contiguous().numpy().tobytes())
    events = repr([tuple(event) for event in result.trace.events()])
    counts = repr((result.masses, result.bytes_put, result.merges, result.skipped, result.lost, result.seconds))
    found = {"weights": digest.hexdigest()}
    for what, text in (("curve", repr(result.points)), ("events", events), ("counts", counts)):
        found[what] = hashlib.sha256(text.encode()).hexdigest()
    return found


@pytest.fixture(scope="module")
def here():
    return {name: fingerprint(name) for name in CASES}


def test_twice_in_one_process(here):
    torch.manual_seed(99)  # what was drawn before does not matter
    torch.rand(7)
    assert {name: fingerprint(name) for name in reversed(CASES)} == here


def test_in_another_process_while_a_core_is_busy(here):
    """Another hash seed, another order of the threads' start, another load: the same bits."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        script = "import json, test_replay as t; print(json.dumps({name: t.fingerprint(name) for name in t.CASES}))"
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": "12345"},
        )  # fmt: skip
    finally:
        busy.kill()
        busy.wait()
    assert json.loads(done.stdout) == here


@pytest.mark.parametrize("name", CASES)
def test_another_seed_is_another_run(here, name):
    other = fingerprint(name, seed=1)
    assert other["weights"] != here[name]["weights"]
    assert other["events"] != here[name]["events"]


def test_the_cases_do_what_they_are_named_after():
    """Links lose messages, dropout drops: replaying a run in which nothing random happens would prove little."""
    run = partial(lu.train, samples=16 * 50, batch_size=16, engine=lu.Virtual(), progress=False)
    assert run(task(), lu.LayUp(4), link=LINK).lost > 0
    same_start = {}
    for p in (0.0, 0.3):
        made = lu.Task(partial(model, p), task().train, task().test, lu.tasks.classification_loss)
        same_start[p] = run(made, lu.SGD()).model.state_dict()["0.weight"]
    assert not torch.equal(same_start[0.0], same_start[0.3])


def test_each_program_has_a_random_stream_of_its_own():
    """What a program draws does not depend on who else draws: it is the same alone and in company."""

    def draws(programs: int) -> list[float]:
        clock, drawn = lu.VirtualClock(), []

        def body(index):
            for _ in range(5):
                number = torch.rand(()).item()
                if index == 0:
                    drawn.append(number)
                clock.sleep(1.0)

        clock.run([lu.Program(i, partial(body, i), index=i, seed=40 + i) for i in range(programs)])
        return drawn

    assert draws(1) == draws(2) == draws(3)
