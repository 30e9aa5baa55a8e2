"""Every bad call is refused before anything starts: with what was given, what is allowed and the nearest name."""

import math
import re
import threading
import warnings
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset

import minilayup as lu
from minilayup.data import Rows
from minilayup.datasets import FASHION_MNIST_FILE
from minilayup.errors import ArgumentError, DataError
from minilayup.exchanges import compare_exchanges
from minilayup.models import mlp
from minilayup.race import contestants, tuned_rates

X, Y = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
CLASSIFY = lu.tasks.classification_loss


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise AssertionError(f"{thread.name} was started before the call was refused")

    monkeypatch.setattr(threading.Thread, "start", start)


def task(model: Any = None, train: Any = (X, Y), test: Any = (X, Y), loss: Any = CLASSIFY, **more: Any) -> lu.Task:
    model = model or partial(mlp, width=4, hidden=1, inputs=4, classes=3)
    return lu.Task(model, train, test, loss, lu.tasks.classification_accuracy, **more)


def train(given: Any = None, method: Any = None, **options: Any) -> lu.Result:
    given, method = task() if given is None else given, lu.SGD() if method is None else method
    return lu.train(given, method, **{"samples": 64, "batch_size": 8, "progress": False, **options})


def compare(methods: Any, **options: Any) -> lu.Comparison:
    return lu.compare(task(), methods, **{"samples": 64, "seeds": 1, "progress": False, **options})


def unlike(call: Any, *arguments: Any, **options: Any) -> Any:
    """The call, to be made later."""
    return lambda: call(*arguments, **options)


def named() -> nn.Module:
    return nn.Sequential(OrderedDict(body=nn.Linear(4, 4), head=nn.Linear(4, 3)))


def frozen() -> nn.Module:
    return nn.Linear(4, 3).requires_grad_(False)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table(x.long().clamp(0, 9)).mean(1)


def old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(4, 3))


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        yield X[0], 0


class Mixed(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)
        self.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64))


STRANGER = nn.Parameter(torch.ones(3))
BAD = torch.cat([X[:20], torch.full((1, 4), math.nan), X[21:]])  # beyond the first batch
TWO_PAIRS, THREE = nx.Graph([(0, 1), (2, 3)]), nx.path_graph(3)
ONE_WAY = nx.DiGraph([(0, 1)])

METHODS = [
    ("0 workers", unlike(lu.LayUp, workers=0), "workers=0 is not allowed: it must be a whole number, at least 1"),
    ("workers=True", unlike(lu.SyncSGD, workers=True), "workers=True is not allowed: it must be a whole number"),
    ("workers='2'", unlike(lu.Hogwild, workers="2"), "workers='2' is not allowed: it must be a whole number"),
    ("workers=2.0", unlike(lu.Hogwild, workers=2.0), "workers=2.0 is not allowed: it must be a whole number"),
    ("update", unlike(lu.Hogwild, update="layers"), "update='layers' is not known. Did you mean 'layer'?"),
    ("update of SGD", unlike(lu.SGD, update="blok"), "Did you mean 'block'? Allowed: 'layer', 'block'"),
    ("weights", unlike(lu.PDASGD, weights="stash"), "weights='stash' is not known. Did you mean 'stashed'?"),
    ("exchange", unlike(lu.LayUp, exchange="pushsum"), "exchange='pushsum' is not known. Did you mean 'push-sum'?"),
    ("peer", unlike(lu.LayUp, peer="by_rate"), "peer='by_rate' is not known. Did you mean 'by-rate'?"),
    ("draw", unlike(lu.LayUp, draw="Layer"), "draw='Layer' is not known. Did you mean 'layer'?"),
    ("probability", unlike(lu.LayUp, probability=1.5), "probability=1.5 is not allowed: it must be a finite number, "
     "at least 0 and at most 1"),
    ("topology's name", unlike(lu.LayUp, topology="rign"), "topology='rign' is not known. Did you mean 'ring'?"),
    ("disconnected graph", unlike(lu.LayUp, 4, topology=TWO_PAIRS), "topology is disconnected"),
    ("one-way graph", unlike(lu.LayUp, 2, topology=ONE_WAY), "topology is disconnected"),
    ("graph's nodes", unlike(lu.LayUp, 4, topology=THREE), "nodes [0, 1, 2]; 4 workers need 0 to 3"),
    ("topology's type", unlike(lu.LayUp, topology=[[1], [0]]), "or a networkx graph, not [[1], [0]]"),
    ("no backward program", unlike(lu.PDASGD, 2, 0), "backward=0 is not allowed: it must be a whole number, at least"),
    ("slack", unlike(lu.PDASGD, slack=-1), "slack=-1 is not allowed: it must be a whole number, at least 0"),
    ("race with 1 worker", unlike(contestants, 1), "a race needs workers >= 2: with one, every method is SGD"),
    ("race with 0 workers", unlike(contestants, 0), "workers=0 is not allowed"),
    ("exchanges with 1 worker", unlike(compare_exchanges, workers=1), "workers=1 is not allowed: it must be a whole "
     "number, at least 2"),
    ("exchanges, few samples", unlike(compare_exchanges, samples=3), "samples=3 is not allowed"),
]  # fmt: skip

BUDGETS = [
    ("no budget", unlike(train, samples=None), "nothing says when to end: give samples=, seconds= or target="),
    ("samples=0", unlike(train, samples=0), "samples=0 is not allowed: it must be a whole number, at least 1"),
    ("samples=-5", unlike(train, samples=-5), "samples=-5 is not allowed: it must be a whole number, at least 1"),
    ("samples=1.5", unlike(train, samples=1.5), "samples=1.5 is not allowed: it must be a whole number"),
    ("seconds=0", unlike(train, seconds=0), "seconds=0 is not allowed: it must be a finite number, above 0"),
    ("seconds=NaN", unlike(train, seconds=math.nan), "seconds=nan is not allowed: it must be a finite number"),
    ("target='85%'", unlike(train, target="85%"), "target='85%' is not allowed: it must be a finite number, above 0"),
    ("target=0", unlike(train, target=0), "target=0 is not allowed: it must be a finite number, above 0"),
    ("target=85", unlike(train, target=85), "target=85 is not allowed: it must be a finite number, above 0 and at mos"),
    ("batch > set", unlike(train, batch_size=65), "batch_size=65 is not allowed: there are only 64 rows"),
    ("batch > share", unlike(train, task(skew=1), lu.SyncSGD(16)), "batch_size=8 is not allowed: there are only 4 row"),
    ("batch_size=0", unlike(train, batch_size=0), "batch_size=0 is not allowed: it must be a whole number, at least 1"),
    ("micro_batches", unlike(train, micro_batches=3),
     "batch_size=8 cannot be cut into micro_batches=3 equal parts: give "
     "a divisor"),
    ("micro_batches=0", unlike(train, micro_batches=0), "micro_batches=0 is not allowed"),
    ("evaluate_every=0", unlike(train, evaluate_every=0), "evaluate_every=0 is not allowed: it must be a whole number"),
]  # fmt: skip

PLACES = [
    ("engine's name", unlike(train, engine="virtaul"), "engine='virtaul' is not known. Did you mean 'virtual'?"),
    ("engine's type", unlike(train, engine=2), "engine=2 is not known: give 'threads', 'virtual' or Virtual(jitter=0)"),
    ("engine's class", unlike(train, engine=lu.Virtual), "Virtual'> is not known: give 'threads', 'virtual' or Virtua"),
    ("cost", unlike(lu.Virtual, cost="flop"), "cost='flop' is not known. Did you mean 'flops'?"),
    ("jitter", unlike(lu.Virtual, jitter=-1), "jitter=-1 is not allowed: it must be a finite number, at least 0"),
    ("per", unlike(lu.Virtual, per="batches"), "per='batches' is not known. Did you mean 'batch'?"),
    ("forward", unlike(lu.Virtual, forward=0), "forward=0 is not allowed: it must be a finite number, above 0"),
    ("devices=[]", unlike(train, devices=[]), "devices=[] is empty: leave it out, or name at least one, such as 'cpu'"),
    ("devices=2", unlike(train, devices=2), "devices=2 is a int; give a list of names, such as ['cpu']"),
    ("unknown device", unlike(train, devices=["gpu"]), "devices: 'gpu' cannot be used on this machine"),
    ("device's type", unlike(train, devices=[None]), "devices: None cannot be used on this machine"),
    ("virtual on meta", unlike(train, devices=["meta"], engine="virtual"), "virtual clock runs on CPU tensors, not on"),
    ("threads on meta", unlike(train, devices=["meta"]), "'meta' tensors have no numbers to train; use 'cpu'"),
    ("latency", unlike(lu.Link, latency=-1), "latency=-1 is not allowed: it must be a finite number, at least 0"),
    ("loss of messages", unlike(lu.Link, loss=2), "loss=2 is not allowed: it must be a finite number, at least 0 and"),
    ("lost", unlike(lu.Link, lost="return"), "lost='return' is not known. Did you mean 'returned'?"),
    ("bandwidth", unlike(lu.Link, bandwidth=0), "bandwidth=0 is not allowed: it must be a finite number, above 0"),
    ("link=0.1", unlike(train, link=0.1), "link=0.1 is a float; give minilayup.Link(latency=0.1), for example"),
    ("slow, worker", unlike(train, slow={3: 2}), "slow=3 is not a worker; there are workers 0 to 0"),
    ("slow, group", unlike(train, None, lu.PDASGD(), slow={"forwards": 2}), "Did you mean 'forward'? Allowed: "
     "'backward', 'forward'"),
    ("slow, factor", unlike(train, slow={0: 0.5}), "slow[0]=0.5 is not allowed: it must be a finite number, at least "),
    ("slow=4", unlike(train, slow=4.0), "slow=4.0 is a float; give {worker or group: factor}"),
    ("seed=-1", unlike(train, seed=-1), "seed=-1 is not allowed: it must be a whole number, at least 0"),
    ("seed=1.5", unlike(train, seed=1.5), "seed=1.5 is not allowed: it must be a whole number, at least 0"),
]  # fmt: skip

ROLES = [
    ("method's class", unlike(train, None, lu.LayUp), "is the class LayUp itself; give minilayup.LayUp(workers=2)"),
    ("method's name", unlike(train, None, "layup"), "method='layup' is a str; give minilayup.LayUp(workers=2)"),
    ("swapped", unlike(train, lu.SGD(), task()), "is a SGD; give minilayup.tasks.fashion_mnist(), for example"),
    ("rule=0.1", unlike(train, rule=0.1), "rule=0.1 is a float; give minilayup.rules.SGD(lr=0.05), for example"),
    ("rule=0", unlike(train, rule=0), "rule=0 is a int; give minilayup.rules.SGD(lr=0.05), for example"),
    ("lr", unlike(lu.rules.SGD, lr=-1), "lr=-1 is not allowed: it must be a finite number, at least 0"),
    ("momentum", unlike(lu.rules.SGD, momentum=1.5), "momentum=1.5 is not allowed: it must be a finite number, at lea"),
    ("nesterov", unlike(lu.rules.SGD, nesterov=True), "nesterov=True needs momentum > 0 and dampening = 0"),
    ("betas", unlike(lu.rules.AdamW, betas=0.9), "betas=0.9 is not allowed: give two numbers"),
    ("beta=1", unlike(lu.rules.AdamW, betas=(0.9, 1)), "betas=1 is not allowed: it must be a finite number, at least 0 "
     "and below 1"),
    ("schedule", unlike(train, schedule=0.5), "schedule=0.5 is a float; give a function of the samples seen"),
    ("schedule's value", unlike(train, schedule=lambda samples: math.nan), "schedule(0)=nan is not allowed"),
    ("warm-up", unlike(lu.rules.WarmUp, 0), "samples=0 is not allowed: it must be a whole number, at least 1"),
    ("a block", unlike(train, task(named), layers=["heads"]), "layers='heads' is not known. Did you mean 'head'?"),
    ("no such block", unlike(train, layers=["nope"]), "layers='nope' is not known. Allowed: '"),
    ("layers='modul'", unlike(train, layers="modul"), "layers='modul' is not known. Did you mean 'module'?"),
    ("layers=3", unlike(train, layers=3), "layers=3 is not allowed: give 'module', 'parameter' or a list"),
    ("no methods", unlike(compare, []), "methods is empty: give at least one, such as minilayup.SyncSGD(2)"),
    ("one method", unlike(compare, lu.SGD()), "methods=SGD() is one method: give a list, [SGD()]"),
    ("no method", unlike(compare, [lu.SGD(), "layup"]), "methods: 'layup' is no method; give objects such as"),
    ("twice", unlike(compare, [lu.LayUp(2), lu.LayUp()]), "methods: LayUp() is there twice; give {name: method}"),
    ("seeds=0", unlike(compare, [lu.SGD()], seeds=0), "seeds=0 is not allowed: it must be a whole number, at least 1"),
    ("seeds=[]", unlike(compare, [lu.SGD()], seeds=[]), "seeds=[] is empty: give how many, or which"),
    ("seeds='3'", unlike(compare, [lu.SGD()], seeds="3"), "seeds='3' is not allowed: it must be a whole number"),
    ("compare, samples", unlike(compare, [lu.SGD()], samples="9"), "samples='9' is not allowed"),
    ("compare, rule", unlike(compare, {"plain": lu.SGD()}, rule={"plan": lu.rules.SGD()}), "Did you mean 'plain'?"),
    ("compare, slow", unlike(compare, [lu.SGD(), lu.LayUp()], slow={2: 2}), "slow=2 is not a worker; there are workers "
     "0 to 1"),
]  # fmt: skip

MODELS = [
    ("no parameters", unlike(train, task(nn.Flatten)), "the model has no trainable parameters"),
    ("all frozen", unlike(train, task(frozen)), "the model has no trainable parameters: every one has requires_grad=F"),
    ("lazy", unlike(train, task(lambda: nn.LazyLinear(3))), "lazy modules that are not yet initialised: run one batch"),
    ("sparse", unlike(train, task(Sparse)), "'table' makes sparse gradients, which no rule here writes: use sparse=F"),
    ("weight_norm", unlike(train, task(old_weight_norm)), "use torch.nn.utils.parametrizations.weight_norm"),
    ("two dtypes", unlike(train, task(Mixed, loss=lambda m, b: m.weight.sum() + m.bias.sum())), "use one dtype a laye"),
    ("no module", unlike(train, task(lambda: 3)), "model() must return an nn.Module; it returned a int"),
    ("loss not a scalar", unlike(train, task(loss=lambda m, b: m(b[0]).sum(1))), "a scalar tensor, not (8,)"),
    ("loss not a tensor", unlike(train, task(loss=lambda m, b: 1.0)), "the loss must be a scalar tensor, not float"),
    ("loss without model", unlike(train, task(loss=lambda m, b: b[0].sum())), "the loss does not depend on the model'"),
    ("loss's own weights", unlike(train, task(loss=lambda m, b: (m(b[0]) * STRANGER).sum())),
     "trainable parameters that "
     "the model does not own, of shape (3,)"),
    ("loss takes logits", unlike(task, loss=nn.CrossEntropyLoss()), "loss is called as loss(module, batch), but"),
    ("NaN in the data", unlike(train, task(train=(BAD, Y))), "train: the data has values that are not finite (NaN, "
     "infinity), first in row 20"),
    ("NaN in the test data", unlike(train, task(test=(BAD, Y))), "test: the data has values that are not finite"),
    ("loss not finite", unlike(train, task(loss=lambda m, b: m(b[0]).sum() / 0)), "before any training: the data is "
     "finite"),
    ("IterableDataset", unlike(task, train=Endless()), "train: Endless is an IterableDataset: it has no row numbers"),
    ("lengths", unlike(task, train=(X, Y[:-1])), "train: All tensors must have the same number of rows"),
    ("no rows", unlike(task, train=(X[:0], Y[:0])), "There are no rows: the source is empty"),
    ("skew, no labels", unlike(train, task(train=X, loss=lambda m, b: m(b).sum(), skew=0.5), lu.LayUp()),
     "skew=0.5 needs "
     "labels"),
    ("skew=2", unlike(task, skew=2), "skew=2 is not allowed: it must be a finite number, at least 0 and at most 1"),
    ("task's name", unlike(lu.tasks.make, "fashion_mnist"), "Did you mean 'fashion-mnist'?"),
    ("model's name", unlike(lu.tasks.fashion_mnist, model="cnm"), "model='cnm' is not known. Did you mean 'cnn'?"),
]  # fmt: skip

TABLE = [*METHODS, *BUDGETS, *PLACES, *ROLES, *MODELS]


@pytest.mark.parametrize(("call", "phrase"), [pytest.param(call, phrase, id=name) for name, call, phrase in TABLE])
def test_bad_call_is_refused_before_anything_starts(call: Any, phrase: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(phrase)) as caught:
        call()
    assert "\n" not in str(caught.value)  # one sentence or two, no dump


def test_table_is_long_enough() -> None:
    assert len(TABLE) >= 45
    assert len({name for name, *_ in TABLE}) == len(TABLE)


def test_unknown_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="sample"):
        train(sample=10)
    with pytest.raises(TypeError, match="worker"):
        lu.LayUp(worker=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="methods"):
        lu.compare(task(), samples=10)  # type: ignore[call-arg]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("engine", ["threads", "virtual"])
def test_cuda_where_there_is_none(engine: str) -> None:
    with pytest.raises(ArgumentError, match=r"devices: 'cuda' cannot be used on this machine \(.+\); 'cpu' can"):
        train(devices=["cuda"], engine=engine)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA on this machine")
def test_virtual_clock_on_cuda() -> None:
    with pytest.raises(ArgumentError, match="the virtual clock runs on CPU tensors, not on 'cuda'"):
        train(devices=["cuda"], engine="virtual")


def test_data_that_is_missing_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is missing\. Make it again with: python data/make_fashion_mnist\.py"):
        lu.tasks.fashion_mnist(folder=tmp_path)
    (tmp_path / FASHION_MNIST_FILE).write_bytes(b"PK not really")
    with pytest.raises(DataError, match=r"is damaged\. SHA-256 of its contents"):
        lu.tasks.fashion_mnist(folder=tmp_path)


def test_cifar10_is_not_downloaded_unasked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"CIFAR10 is not in .*: give download=True to fetch it"):
        lu.tasks.cifar10(folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_stored_rates_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minilayup.race.shipped_folder", lambda: tmp_path)
    with pytest.raises(DataError, match=r"the tuned learning rates cannot be read from .*: run bench/tune_race\.py"):
        tuned_rates(2, "equal")


def test_a_loss_that_fails_says_where_itself() -> None:
    def loss(module: nn.Module, batch: Any) -> torch.Tensor:
        raise ZeroDivisionError("in the loss")

    with pytest.raises(ZeroDivisionError, match="in the loss"):  # its own traceback is the best message
        train(task(loss=loss))


def test_a_refused_call_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ArgumentError):
        train(task(loss=lambda m, b: m(b[0]).sum() / 0))
    assert torch.equal(before, torch.get_rng_state())


def test_rows_of_rows_are_rows() -> None:
    assert len(Rows(Rows(X))) == 64
