"""The critical learning rate, held against the border of stability that is known exactly."""

import json
import math
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

import minilayup as lu
from minilayup import theory
from minilayup.critical import Critical, critical_rate
from minilayup.errors import ArgumentError
from minilayup.models import mlp

BOWL = lu.tasks.quadratic(eigenvalues=[0.2, 1.0], rows=8)
START = float(BOWL.loss(BOWL.model(), torch.zeros(1, 2)).detach())  # the test loss before the first step
STEADY = lu.Virtual(jitter=0)


def search(method: Any = None, task: Any = BOWL, **options: Any) -> Critical:
    """On the bowl: from 1/8 to 8 in 96 cells or more, each 5 % wide or less."""
    defaults = {"target": 0.01 * START, "samples": 8 * 400, "low": 0.125, "high": 8.0, "seeds": [0], "batch_size": 8}
    return critical_rate(task, lu.SGD() if method is None else method, **{"engine": STEADY, **defaults, **options})


def clusters() -> lu.Task:
    """Three clouds of points, easily told apart."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(96) % 3
    x = torch.randn(96, 4, generator=random) + 3 * torch.eye(3, 4)[y]
    model = partial(mlp, width=8, hidden=1, inputs=4, classes=3)
    return lu.Task(model, (x, y), (x, y), lu.tasks.classification_loss, lu.tasks.classification_accuracy, "clusters")


# -- what is found -----------------------------------------------------------------------------------------------------
def test_the_border_of_plain_sgd_is_theorys() -> None:
    found = search(seeds=[0, 1])
    assert found.resolution == pytest.approx(64 ** (1 / 128) - 1)
    for reached, failed in found.brackets:
        assert reached <= theory.delay_border(0) * 1.001 and failed >= theory.delay_border(0) * 0.99
    assert found.mean == pytest.approx(theory.delay_border(0), rel=found.resolution + 0.01)
    assert found.spread == 0  # a bowl without noise: the seeds differ in nothing


@pytest.mark.parametrize("slack", [0, 1])
def test_the_border_under_a_constant_delay_is_theorys(slack: int) -> None:
    """Stashed PD-ASGD with one backward program is gradient descent with a delay of 1 + slack."""
    found = search(lu.PDASGD(1, 1, slack, weights="stashed"))
    assert found.mean == pytest.approx(theory.delay_border(1 + slack), rel=found.resolution + 0.01)


def test_the_rates_in_a_bracket_are_what_they_say() -> None:
    found = search(steps=4)
    (reached, failed), rates = found.brackets[0], [0.125 * 64 ** (cell / 16) for cell in range(17)]
    assert any(math.isclose(reached, a) and math.isclose(failed, b) for a, b in pairwise(rates))
    options = {"samples": 3200, "batch_size": 8, "engine": STEADY, "progress": False}
    assert lu.train(BOWL, lu.SGD(), rule=lu.rules.SGD(reached), **options).score <= 0.01 * START
    with pytest.raises(lu.Diverged):
        lu.train(BOWL, lu.SGD(), rule=lu.rules.SGD(failed), **options)


def test_an_accuracy_is_to_be_high_and_a_run_that_diverges_is_not_there() -> None:
    options = {"task": clusters(), "target": 0.8, "samples": 480, "low": 0.05, "high": 1e6, "steps": 5}
    found = search(**options)
    assert found.metric == "accuracy" and 0.05 <= found.mean < 1e6
    with pytest.raises(lu.Diverged):
        lu.train(options["task"], lu.SGD(), samples=480, rule=lu.rules.SGD(1e6), batch_size=8, progress=False,
                 engine="virtual")  # fmt: skip


def test_the_same_call_finds_the_same_and_a_seed_the_same_in_any_company() -> None:
    options = {"task": clusters(), "target": 0.8, "samples": 480, "low": 0.05, "high": 1e4, "steps": 5}
    options["engine"] = lu.Virtual(jitter=0.3)
    both = search(lu.Hogwild(3), seeds=[1, 0], **options)
    assert both == search(lu.Hogwild(3), seeds=[1, 0], **options)
    assert both.brackets == tuple(search(lu.Hogwild(3), seeds=[s], **options).brackets[0] for s in (1, 0))
    assert search(lu.Hogwild(3), seeds=2, **options).seeds == (0, 1)


def test_other_rules_schedules_and_slow_workers_are_handed_on() -> None:
    """Heavy-ball momentum mu moves the border to 2 (1 + mu); a schedule of 1/2 doubles it."""
    heavy = search(rule=lambda lr: lu.rules.SGD(lr, momentum=0.5))
    assert heavy.mean == pytest.approx(3.0, rel=heavy.resolution + 0.01)
    halved = search(schedule=lambda samples: 0.5)
    assert halved.mean == pytest.approx(4.0, rel=halved.resolution + 0.01)
    assert search(lu.Hogwild(2), slow={1: 2.0}, steps=3).method == "Hogwild()"


def test_it_takes_one_run_for_each_bisection_unless_an_end_is_in_doubt() -> None:
    assert search(steps=5).runs == 5
    assert search(low=1.9, steps=2).runs == 3  # low is the rate that is found, so it is tried too


def test_a_result_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = Critical("SGD()", "toy", "accuracy", 0.8, 1280, (0, 1), ((0.25, 0.5), (0.75, 1.5)), 14)
    assert found.rates == (0.25, 0.75) and found.mean == 0.5 and found.resolution == 1
    assert found.spread == pytest.approx(math.sqrt(0.125))
    assert str(found).startswith("SGD() on toy: critical learning rate 0.5 ± 0.35 (2 seeds, each to 100.0%)")
    assert str(found).endswith("for a test accuracy >= 0.8 after 1,280 samples")
    assert json.loads(json.dumps(found.to_dict()))["rates"] == [0.25, 0.75]
    assert "(1 seed," in str(search(steps=1)) and "loss <=" in str(search(steps=1))
    assert capsys.readouterr().out == ""


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_ends_that_do_not_hold_the_border_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"low=3 does not reach .* with seed 0.*give a lower one"):
        search(low=3.0, steps=2)
    with pytest.raises(ArgumentError, match=r"high=1\.5 still reaches .* with seed 0: give a higher one"):
        search(high=1.5, steps=2)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"task": "bowl"}, "task='bowl' is a str"),
        ({"method": lu.SGD}, "is the class SGD itself"),
        ({"target": 0}, "target=0 is not allowed.*above 0"),
        ({"target": math.nan}, "target=nan"),
        ({"task": clusters(), "target": 1.5}, r"target=1\.5 .*at most 1"),
        ({"samples": 0}, "samples=0"),
        ({"samples": None}, "samples=None"),
        ({"low": 0.0}, r"low=0\.0 .*above 0"),
        ({"low": 1.0, "high": 1.0}, r"high=1\.0 .*above 1"),
        ({"high": math.inf}, "high=inf"),
        ({"seeds": []}, "seeds=.* is empty"),
        ({"seeds": 0}, "seeds=0"),
        ({"seeds": [0, -1]}, "seeds=-1"),
        ({"seeds": "01"}, "seeds='01'"),
        ({"steps": 0}, "steps=0"),
        ({"rule": lu.rules.SGD(0.1)}, "rule=SGD.*a function of the learning rate"),
        ({"rule": lambda lr: lr}, r"rule\(0\.125\)=0\.125 is a float"),
        ({"engine": lu.Threads()}, "engine=Threads.*a virtual clock"),
        ({"engine": "virtual"}, "engine='virtual' is a str"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"slow": {3: 2.0}}, "slow=3 is not a worker"),
    ],
)
def test_bad_calls_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        search(**options)
