"""Closed forms against runs on the virtual clock."""

import itertools
import math
from functools import cache, partial
from statistics import fmean

import pytest
import torch
from torch import nn

import minilayup as lu
from minilayup import theory
from minilayup.gossip import Average
from minilayup.replica import Replica

LAYERS, BETA = 18, 2.0
X = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
Y = torch.zeros(64, 2)


def eighteen_layers() -> nn.Module:
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(LAYERS)))


def one_layer() -> nn.Module:
    return nn.Linear(2, 2)


def three_layers() -> nn.Module:
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))


def mean_square(module, batch):
    x, y = batch
    return (module(x) - y).square().mean()


def run(method, batches=None, *, model=eighteen_layers, beta=BETA, jitter=0.0, seed=0, **options):
    """A run on the virtual clock in which a forward pass takes 1 and a backward pass beta."""
    task = lu.Task(model, (X, Y), (X[:2], Y[:2]), mean_square)
    samples = None if batches is None else 2 * batches
    engine = lu.Virtual(forward=1.0, backward=beta, jitter=jitter, per="layer")
    return lu.train(
        task, method, samples=samples, batch_size=2, engine=engine, seed=seed, evaluate_every=10**6, progress=False,
        rule=options.pop("rule", lu.rules.SGD(lr=1e-3)), **options,
    )  # fmt: skip


# -- throughput --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("slack", [0, 1, 3])
@pytest.mark.parametrize(
    "forward, backward, beta",
    [(1, 1, 2.0), (1, 3, 2.0), (1, 4, 2.0), (2, 1, 2.0), (2, 2, 2.5), (1, 2, 1.0), (2, 5, 1.5)],
)
def test_throughput_is_exact_without_jitter_away_from_critical_load(forward, backward, beta, slack):
    """After the start: in any stretch of time T the slower group completes exactly rate T batches."""
    batches = 120
    result = run(lu.PDASGD(forward, backward, slack), batches, model=one_layer, beta=beta)
    ends = sorted(event.end for event in result.trace.events("write"))
    first, last = 40, 40 + 12 * (forward if forward < backward / beta else backward)  # whole rounds of the slower group
    rate = (last - first) / (ends[last] - ends[first])
    assert rate == pytest.approx(theory.throughput(forward, backward, beta), rel=1e-9)


@pytest.mark.parametrize("forward, backward, slack", [(1, 1, 1), (1, 2, 0), (1, 2, 1), (1, 2, 4), (1, 3, 1), (2, 1, 1)])
def test_throughput_is_within_three_per_cent_with_jitter(forward, backward, slack):
    result = run(lu.PDASGD(forward, backward, slack), 160, jitter=0.1)
    ends = sorted(event.end for event in result.trace.events("write") if event.layer == 0)
    rate = 130 / (ends[150] - ends[20])
    assert rate == pytest.approx(theory.throughput(forward, backward, BETA), rel=0.03)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_per_thread_decoupling_gains_nothing_over_hogwild(workers):
    result = run(lu.Hogwild(workers), 12 * workers)
    assert result.seconds == pytest.approx(12 * (1 + BETA))
    assert theory.speed_up(1, 2, BETA) == 3 == theory.throughput(1, 2, BETA) * (1 + BETA)


# -- staleness: table 1.2 of the theory notes --------------------------------------------------------------------------
SEEDS = range(5)
LAYOUTS = {
    "hogwild block": lu.Hogwild(3),
    "hogwild layer": lu.Hogwild(3, update="layer"),
    "1:2 block": lu.PDASGD(1, 2, 1, update="block"),
    "1:2 queue 0": lu.PDASGD(1, 2, 0),
    "1:2 queue 1": lu.PDASGD(1, 2, 1),
    "1:2 queue 4": lu.PDASGD(1, 2, 4),
    "1:3": lu.PDASGD(1, 3, 1),
    "1:1": lu.PDASGD(1, 1, 1),
    "2:1": lu.PDASGD(2, 1, 1),
}


# Hogwild's workers begin together, and jitter alone needs some thousand steps to carry them out of step. Workers of
# slightly different speeds pass through all phases in a few dozen.
OUT_OF_STEP = {1: 1.07, 2: 1.17}


@cache
def staleness(layout: str, seed: int, batches: int = 100) -> tuple[float, int]:
    """Mean and largest staleness, without the first fifth of the run."""
    slow = OUT_OF_STEP if "hogwild" in layout else None
    writes = run(LAYOUTS[layout], batches, jitter=0.1, seed=seed, slow=slow).trace.events("write")
    late = [event.staleness for event in writes if event.batch >= batches // 5]
    return fmean(late), max(late)


@pytest.mark.parametrize(
    "layout, mean, largest",
    [("hogwild block", 1.77, 3), ("hogwild layer", 1.06, 3), ("1:3", 1.08, 3), ("1:1", 1.69, 2), ("2:1", 2.69, 3)],
)
def test_staleness_of_the_layouts_is_that_of_the_table(layout, mean, largest):
    found = [staleness(layout, seed) for seed in SEEDS]
    assert fmean(tau for tau, _ in found) == pytest.approx(mean, rel=0.1)
    assert max(top for _, top in found) <= largest + 1


@pytest.mark.parametrize("update", ["block", "layer"])
def test_hogwild_staleness_over_all_phases_is_the_closed_form(update):
    found = fmean(staleness(f"hogwild {update}", seed)[0] for seed in SEEDS)
    assert found == pytest.approx(theory.hogwild_staleness(3, LAYERS, update), rel=0.06)


def test_hogwild_that_begins_together_and_stays_in_step_writes_one_after_the_other():
    """Without jitter the three read the same weights and write them in turn: staleness 0, 1 and 2.  (Not so the first
    layer: who has written reads it again before the next one writes.)"""
    trace = run(LAYOUTS["hogwild block"], 30).trace
    assert [trace.mean_staleness(layer) for layer in range(1, LAYERS)] == [1.0] * (LAYERS - 1)


@pytest.mark.parametrize(
    "layout, low, high",
    [("1:2 block", 1.9, 3.0), ("1:2 queue 0", 0.85, 1.25), ("1:2 queue 1", 1.1, 1.9), ("1:2 queue 4", 1.1, 6.0)],
)
def test_staleness_at_critical_load_is_bounded(layout, low, high):
    """At 1F:2B with beta = 2 it depends on how the jitter is drawn; the pool bounds it."""
    method = LAYOUTS[layout]
    for seed in SEEDS:
        mean, largest = staleness(layout, seed)
        assert low <= mean <= high
        assert largest < method.forward + 2 * method.backward + method.slack


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("block, layer", [("hogwild block", "hogwild layer"), ("1:2 block", "1:2 queue 1")])
def test_layer_wise_writing_is_less_stale_for_every_seed(block, layer, seed):
    assert staleness(layer, seed)[0] < 0.8 * staleness(block, seed)[0]


def test_more_waiting_places_are_more_stale():
    """One backward program for one forward program: the pool is always full."""
    taus = [run(lu.PDASGD(1, 1, slack), 60, model=three_layers).trace.max_staleness() for slack in (0, 1, 4)]
    assert taus == [1, 2, 5]


def test_the_mean_wait_saved_by_layer_wise_writing_is_exact():
    at = {}
    for update in ("layer", "block"):
        events = run(lu.SGD(update=update), 3).trace.events("write")
        at[update] = {(event.batch, event.layer): event.end for event in events}
    saved = [at["block"][key] - at["layer"][key] for key in at["block"]]
    assert len(saved) == 3 * LAYERS
    assert fmean(saved) == pytest.approx(BETA * (1 / LAYERS) * (LAYERS - 1) / 2, abs=1e-9)  # 0.9444
    last_layer_first = [saved[key] for key in range(LAYERS)]
    assert max(last_layer_first) == pytest.approx(BETA * (LAYERS - 1) / LAYERS)


# -- stability under delay ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tau", range(11))
def test_the_border_of_stability_under_delay(tau):
    border = theory.delay_border(tau)
    inside = theory.delayed_descent(0.97 * border, tau, 6_000)
    outside = theory.delayed_descent(1.03 * border, tau, 6_000)
    assert max(map(abs, inside[-100:])) < 1e-3
    assert max(map(abs, outside[-100:])) > 1e3


def test_the_border_is_that_of_the_notes():
    wanted = {0: 2.0, 1: 1.0, 2: 0.6180, 5: 0.2846, 10: 0.1495}
    assert {tau: round(theory.delay_border(tau), 4) for tau in wanted} == wanted


@pytest.mark.parametrize("slack", [0, 1, 3])
def test_a_run_is_stable_just_inside_the_border_and_not_outside(slack):
    """Stashed PD-ASGD with one backward program is gradient descent with a constant delay."""
    task = lu.tasks.quadratic(eigenvalues=[0.2, 1.0], rows=8)

    def end(a):
        result = lu.train(task, lu.PDASGD(1, 1, slack, weights="stashed"), samples=8 * 1_200, batch_size=8,
                          rule=lu.rules.SGD(lr=a), engine=lu.Virtual(jitter=0), progress=False)  # fmt: skip
        late = {event.staleness for event in result.trace.events("write") if event.batch > 50}
        return result.points[-1].score / result.points[0].score, late

    tau = 1 + slack
    inside, late = end(0.97 * theory.delay_border(tau))
    assert late == {tau} and inside < 1e-3
    assert end(1.03 * theory.delay_border(tau))[0] > 1e3


# -- bias --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("eta, tau", [(0.01, 1), (0.01, 5), (0.01, 20), (0.05, 5), (0.05, 10), (0.1, 5)])
def test_the_bias_of_stale_gradients_is_within_its_bound(eta, tau):
    random = torch.Generator().manual_seed(0)
    values = torch.linspace(0.1, 1.0, 20, dtype=torch.float64)
    path = [torch.randn(20, dtype=torch.float64, generator=random)] * (tau + 1)
    for _ in range(400):
        path.append(path[-1] - eta * values * path[-1 - tau])
    bias = max(float((values * (path[k - tau] - path[k])).norm()) for k in range(tau, len(path)))
    largest = max(float((values * x).norm()) for x in path)
    assert 1.2 < theory.bias_bound(largest, 1.0, eta, tau) / bias < 3.5
    assert theory.bias_bound(1.0, 1.0, 0.1, 10) == math.inf


# -- gossip ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_pair_averaging_contracts_as_the_closed_form_says(workers):
    """The mean over all pairs of what one exchange leaves of the variance is exactly 1 - 1 / (n - 1)."""
    start = torch.randn(workers, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(workers))

    def variance(x):
        return float((x - x.mean(0)).square().sum())

    left = []
    for i, j in itertools.permutations(range(workers), 2):
        replicas = [Replica(nn.Linear(1, 1, bias=False).double(), k) for k in range(workers)]
        for replica, x in zip(replicas, start):
            replica.layers[0].flat = x.clone()
        rule = Average()
        rule.begin(1, workers)
        mine, theirs = replicas[i].layers[0], replicas[j].layers[0]
        rule.settle(i, j, mine, rule.receive(i, j, theirs, rule.send(i, j, mine)))
        left.append(variance(torch.stack([replica.layers[0].flat for replica in replicas])) / variance(start))
    assert fmean(left) == pytest.approx(theory.pair_contraction(workers), abs=1e-12)


# -- stragglers --------------------------------------------------------------------------------------------------------
STRAGGLED = {
    "sync": partial(lu.SyncSGD, 3),
    "hogwild": partial(lu.Hogwild, 3),
    "layup": partial(lu.LayUp, 3),
    "layup, push-sum": partial(lu.LayUp, 3, exchange="push-sum"),
}


@pytest.mark.parametrize("factor", [2.0, 4.0])
@pytest.mark.parametrize("name", STRAGGLED)
def test_one_slow_worker_costs_what_theory_says(name, factor):
    """In 120 passes' time: exact on the virtual clock, in whole batches."""
    seconds = 40 * (1 + BETA) - 0.5  # not where batches end
    own = run(STRAGGLED[name](), seconds=seconds).samples
    slowed = run(STRAGGLED[name](), seconds=seconds, slow={1: factor}).samples
    assert own == 2 * 3 * 40
    sync, asynchronous = theory.straggler_speed(3, factor)
    assert slowed / own == pytest.approx(sync if name == "sync" else asynchronous, rel=1e-12)


def test_who_has_a_say_with_a_slow_worker():
    """Equal workers have a say of 1 each; push-sum falls to the harmonic mean of the rates, symmetric keeps the sum."""
    for exchange in ("average", "push-sum", "push"):
        assert theory.progress_shares([1, 1, 1], exchange) == pytest.approx([1, 1, 1])
    rates = [1, 1, 1, 0.1]
    assert sum(theory.progress_shares(rates, "average")) == pytest.approx(3.1)
    assert theory.progress_shares(rates, "push-sum") == pytest.approx([4 / 13] * 4)
