"""One worker is torch.optim, bit for bit; N synchronous workers are one big batch."""

import inspect
from dataclasses import dataclass
from functools import cache, partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import minilayup as lu
from minilayup.data import Stream, split
from minilayup.models import gpt, mlp
from minilayup.rules import SGD, AdamW, Cosine, Step, WarmUp
from minilayup.threads import ProgramError

STEPS, BATCH, SEED = 100, 8, 3
ENGINES = {"threads": "threads", "virtual": lu.Virtual()}


# -- methods that come down to plain SGD -------------------------------------------------------------------------------
@dataclass(frozen=True)
class OneView(lu.PDASGD):
    """PD-ASGD's own programs with one view in the pool: forward and backward take turns.

    No public setting gives that: F + B + slack is at least 2, and then the next batch reads before this one writes.
    """

    forward: int = 1
    backward: int = 1
    slack: int = 0

    def programs(self, run):
        programs = super().programs(run)
        free = inspect.getclosurevars(programs[0].body).nonlocals["free"]
        while len(free._items) > 1:
            free._items.pop()
        return programs


METHODS = {
    "sgd-block": lu.SGD(),
    "sgd-layer": lu.SGD(update="layer"),
    "sync": lu.SyncSGD(1),
    "hogwild-block": lu.Hogwild(1),
    "hogwild-layer": lu.Hogwild(1, update="layer"),
    "layup": lu.LayUp(1),
    "pd-live": OneView(),
    "pd-stashed": OneView(weights="stashed"),
    "d-asgd": OneView(update="block"),
}
EVERY_METHOD_AND_SOME_ON_THREADS = [
    *((method, "virtual") for method in METHODS),
    *((method, "threads") for method in ("layup", "pd-live")),
]


# -- rules and their twins in torch.optim ------------------------------------------------------------------------------
RULES = {
    "plain": (SGD(0.1), partial(torch.optim.SGD, lr=0.1)),
    "decay": (SGD(0.1, weight_decay=0.01), partial(torch.optim.SGD, lr=0.1, weight_decay=0.01)),
    "momentum": (SGD(0.05, momentum=0.9), partial(torch.optim.SGD, lr=0.05, momentum=0.9)),
    "dampening": (SGD(0.05, 0.9, dampening=0.5), partial(torch.optim.SGD, lr=0.05, momentum=0.9, dampening=0.5)),
    "nesterov": (
        SGD(0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
        partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    ),
    "adamw": (AdamW(0.01), partial(torch.optim.AdamW, lr=0.01)),
}
SCHEDULES = {
    "constant": None,
    "cosine": Cosine(STEPS * BATCH, floor=0.1),
    "warm-up, step": WarmUp(20 * BATCH, Step(30 * BATCH)),
}


# -- models ------------------------------------------------------------------------------------------------------------
class Attention(nn.Module):
    """`out_proj` is used without its forward()."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        x = x.view(-1, 2, 8)
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Tied(nn.Module):
    """An autoencoder whose two matrices are one parameter."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.down.weight = self.up.weight

    def forward(self, x):
        return self.head(self.down(self.up(x).relu()))


class Frozen(nn.Sequential):
    """A frozen layer in the middle, and a frozen bias beside a trainable weight."""

    def __init__(self):
        super().__init__(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        self[2].requires_grad_(False)
        self[4].bias.requires_grad_(False)


class Reused(nn.Module):
    """One layer is used twice in a forward pass."""

    def __init__(self, wrap=lambda layer, x: layer(x)):
        super().__init__()
        self.first, self.twice, self.last = nn.Linear(16, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.wrap = wrap

    def forward(self, x):
        x = self.wrap(self.twice, self.first(x).relu()).relu()
        return self.last(self.wrap(self.twice, x))


class Unused(nn.Module):
    """A layer that no batch uses, and one that only some batches use."""

    def __init__(self):
        super().__init__()
        self.first, self.never, self.some, self.last = (nn.Linear(n, m) for n, m in ((16, 8), (8, 8), (8, 8), (8, 3)))

    def forward(self, x):
        h = self.first(x).relu()
        return self.last(self.some(h) if x.sum() > 0 else h)


class PartlyUsed(nn.Module):
    """A layer of three parameters, of which a batch uses all, two or one."""

    def __init__(self):
        super().__init__()
        self.weight, self.shift, self.never = (nn.Parameter(torch.randn(16, 3) * s) for s in (0.3, 0.1, 1.0))
        self.out = nn.Linear(3, 3)

    def forward(self, x):
        h = x @ self.weight
        return self.out(h + self.shift.sum(0) if x.sum() > 0 else h)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 6, num_layers=2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.lstm(x.view(-1, 4, 4))[0][:, -1])


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant=False):
        super().__init__()
        self.first, self.last = nn.Linear(16, 8), nn.Linear(8, 3)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return self.last(checkpoint(self.block, self.first(x), use_reentrant=self.use_reentrant))


def cnn_with_batchnorm():
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.BatchNorm2d(4, affine=False),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def weight_norm():
    normed = torch.nn.utils.parametrizations.weight_norm
    return nn.Sequential(normed(nn.Linear(16, 8)), nn.Tanh(), normed(nn.Linear(8, 3)))


def channels_last():
    return cnn_with_batchnorm().to(memory_format=torch.channels_last)


MODELS = {
    "mlp": partial(mlp, width=8, hidden=2, inputs=16, classes=3),
    "cnn with batchnorm": cnn_with_batchnorm,
    "channels last": channels_last,
    "attention": Attention,
    "tied": Tied,
    "frozen": Frozen,
    "reused": Reused,
    "unused": Unused,
    "partly used": PartlyUsed,
    "lstm": Recurrent,
    "weight norm": weight_norm,
    "checkpointed": Checkpointed,
}


def make_task(model: str, dtype: torch.dtype = torch.float32) -> lu.Task:
    random = torch.Generator().manual_seed(0)
    if model == "gpt":
        tokens = torch.randint(11, (96, 9), generator=random)
        maker = partial(gpt, vocabulary=11, layers=2, width=8, heads=2, context=8, tied=True)
        return lu.Task(maker, tokens, tokens[:8], lu.tasks.language_model_loss)
    x = torch.randn(300, 16, generator=random, dtype=dtype)
    y = (x @ torch.randn(16, 3, generator=random, dtype=dtype)).argmax(1)
    return lu.Task(lambda: MODELS[model]().to(dtype), (x, y), (x[:40], y[:40]), lu.tasks.classification_loss)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As in a program; products can round differently with two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# -- the plain loop ----------------------------------------------------------------------------------------------------
def plain_loop(task, optimizer, steps=STEPS, batch=BATCH, schedule=None, micro_batches=1, shuffle=True):
    """Trains one model with torch.optim alone; yields it after every step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = task.model()
    optimizer = optimizer([p for p in model.parameters() if p.requires_grad])
    rate = optimizer.param_groups[0]["lr"]
    stream = Stream(task.train, batch, SEED, shuffle)
    for step in range(steps):
        optimizer.zero_grad()
        for part in split(task.train.batch(stream.rows(step)), micro_batches):
            loss = task.loss(model, part)
            (loss / micro_batches if micro_batches > 1 else loss).backward()
        if schedule is not None:
            optimizer.param_groups[0]["lr"] = rate * schedule(step * batch)
        optimizer.step()
        yield model


@cache
def plain(model: str, rule: str, schedule: str = "constant", micro_batches: int = 1):
    *_, trained = plain_loop(
        make_task(model), RULES[rule][1], schedule=SCHEDULES[schedule], micro_batches=micro_batches
    )
    return trained.state_dict()


def ours(model: str, rule: str, method: str, engine: str, schedule: str = "constant", **options):
    return lu.train(
        make_task(model), METHODS[method], samples=STEPS * BATCH, batch_size=BATCH, rule=RULES[rule][0],
        schedule=SCHEDULES[schedule], engine=ENGINES[engine], seed=SEED, evaluate_every=STEPS * BATCH, progress=False,
        **options,
    ).model.state_dict()  # fmt: skip


def assert_same(got, wanted):
    assert got.keys() == wanted.keys()
    different = [name for name in wanted if not torch.equal(got[name], wanted[name])]
    assert not different, f"not the same bits: {different}"


# -- one worker --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method, engine", EVERY_METHOD_AND_SOME_ON_THREADS)
@pytest.mark.parametrize("rule", RULES)
def test_one_worker_is_torch_optim(rule, method, engine):
    got, wanted = ours("mlp", rule, method, engine), plain("mlp", rule)
    if rule == "adamw":
        assert all(torch.allclose(got[name], wanted[name], rtol=0, atol=1e-6) for name in wanted)
    else:
        assert_same(got, wanted)


@pytest.mark.parametrize("method, engine", EVERY_METHOD_AND_SOME_ON_THREADS)
@pytest.mark.parametrize("model", [*list(MODELS)[1:], "gpt"])
def test_one_worker_is_torch_optim_on_every_kind_of_model(model, method, engine):
    assert_same(ours(model, "nesterov", method, engine), plain(model, "nesterov"))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("schedule", list(SCHEDULES)[1:])
def test_one_worker_is_torch_optim_under_a_schedule(schedule, method):
    assert_same(ours("mlp", "momentum", method, "virtual", schedule), plain("mlp", "momentum", schedule))


@pytest.mark.parametrize("method, engine", EVERY_METHOD_AND_SOME_ON_THREADS)
@pytest.mark.parametrize("model", ["mlp", "partly used"])
def test_micro_batches_are_gradient_accumulation(model, method, engine):
    wanted = plain(model, "momentum", micro_batches=4)
    assert_same(ours(model, "momentum", method, engine, micro_batches=4), wanted)


@pytest.mark.parametrize("layers", ["parameter", ["1", "3"]])
@pytest.mark.parametrize("method", ["sgd-layer", "layup", "pd-live"])
def test_the_cut_into_layers_does_not_change_one_worker(method, layers):
    assert_same(ours("mlp", "nesterov", method, "virtual", layers=layers), plain("mlp", "nesterov"))


def test_two_views_are_not_the_plain_loop():
    """What OneView stands for is real: with a second view the next batch reads before this one writes."""
    task = make_task("mlp")
    result = lu.train(task, lu.PDASGD(1, 1, slack=0), samples=STEPS * BATCH, batch_size=BATCH, rule=SGD(0.1), seed=SEED,
                      engine=lu.Virtual(jitter=0), progress=False)  # fmt: skip
    assert result.trace.max_staleness() == 1
    assert not torch.equal(result.model.state_dict()["1.weight"], plain("mlp", "plain")["1.weight"])


# -- activation checkpointing, the other kind --------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ENGINES)
def test_a_layer_completed_twice_names_use_reentrant_false(engine):
    x, y = torch.randn(64, 16), torch.randint(3, (64,))
    model = partial(Reused, wrap=partial(checkpoint, use_reentrant=True))
    task = lu.Task(model, (x, y), (x, y), lu.tasks.classification_loss)
    with pytest.raises(ProgramError, match="use_reentrant=False"):
        lu.train(task, lu.SGD(update="layer"), samples=640, batch_size=8, engine=ENGINES[engine], progress=False)


def test_use_reentrant_false_with_a_layer_used_twice():
    x, y = torch.randn(64, 16), torch.randint(3, (64,))
    model = partial(Reused, wrap=partial(checkpoint, use_reentrant=False))
    task = lu.Task(model, (x, y), (x, y), lu.tasks.classification_loss)
    *_, wanted = plain_loop(task, RULES["nesterov"][1])
    got = lu.train(task, lu.LayUp(1), samples=STEPS * BATCH, batch_size=BATCH, rule=RULES["nesterov"][0], seed=SEED,
                   progress=False)  # fmt: skip
    assert_same(got.model.state_dict(), wanted.state_dict())


# -- N synchronous workers ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "workers, engine, shuffle", [(2, "threads", False), (4, "virtual", True), (4, "threads", True)]
)
@pytest.mark.parametrize("model", ["mlp", "attention", "tied", "frozen", "reused", "lstm"])
def test_synchronous_workers_are_one_big_batch_step_by_step(model, workers, engine, shuffle):
    task, steps, big = make_task(model, torch.float64), 12, workers * BATCH
    result = lu.train(task, lu.SyncSGD(workers), samples=steps * big, batch_size=BATCH, rule=RULES["nesterov"][0],
                      engine=ENGINES[engine], seed=SEED, shuffle=shuffle, evaluate_every=big, trace=False,
                      progress=False)  # fmt: skip
    losses = []
    for trained in plain_loop(task, RULES["nesterov"][1], steps, big, shuffle=shuffle):
        with torch.no_grad():
            losses.append(task.loss(trained, task.test.batch(torch.arange(40))).item())
    assert [point.samples for point in result.points] == [big * step for step in range(steps + 1)]
    assert [point.score for point in result.points[1:]] == pytest.approx(losses, rel=1e-9)
    assert all(point.drift == 0 for point in result.points)  # the replicas stay identical
    got = result.model.state_dict()
    for name, wanted in trained.state_dict().items():
        torch.testing.assert_close(got[name], wanted, rtol=1e-9, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def test_a_parameter_that_no_synchronous_worker_uses_is_left_alone_by_weight_decay():
    task = make_task("unused")
    result = lu.train(task, lu.SyncSGD(2), samples=20 * BATCH, batch_size=BATCH, rule=SGD(0.1, weight_decay=0.1),
                      seed=SEED, progress=False)  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        start = task.model().state_dict()
    got = result.model.state_dict()
    assert torch.equal(got["never.weight"], start["never.weight"])
    assert not torch.equal(got["some.weight"], start["some.weight"])
