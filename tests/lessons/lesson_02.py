"""What lesson 02 shows, and the mistakes that its checks must tell apart."""

import torch
import torch.nn.functional as F

import minilayup as lu
from minilayup.figures.straggler_bench import SECONDS, done, lanes, schedule

SEEDS = (0, 1, 2)


def as_a_run_has_it(data):
    """The schedule is that of real events: every batch of every worker, with and without the barrier."""
    for method, spans in ((lu.SyncSGD, data["work"]), (lu.Hogwild, data["free"])):
        run = lu.train(
            lu.tasks.quadratic(),
            method(data["workers"]),
            seconds=SECONDS,
            batch_size=4,
            rule=lu.rules.SGD(lr=0.01),
            engine=lu.Virtual(jitter=data["jitter"]),
            slow={0: data["factor"]},
            progress=False,
        )
        events = lanes(run.trace)
        assert [len(own) for own in events] == [len(own) for own in spans]
        for own, mine in zip(events, spans):
            assert torch.allclose(torch.tensor(own), torch.tensor(mine), atol=1e-4)
        assert run.updates == (len(data["barriers"]) if method is lu.SyncSGD else sum(map(len, spans)))
    return True


def rounds(workers, factor, jitter, seed):
    """Updates with the barrier, and those of worker 1 alone, in the time that is shown."""
    together = schedule(workers, factor, jitter, seed=seed)
    alone = schedule(workers, factor, jitter, seed=seed, barrier=False)[1]
    barriers = [max(ends) for ends in zip(*([end for _, end in own] for own in together))]
    return done(barriers), done([end for _, end in alone])


def jitter_costs(data):
    """With each of the seeds, eight equal workers with jitter make a fifth fewer updates than one of them alone."""
    return all(together <= 0.8 * alone for together, alone in (rounds(8, 1, 0.5, seed) for seed in SEEDS))


FINDINGS = [
    # N equal workers: N times the batches, but one worker's updates
    ("StragglerBench factor=1 workers=8 jitter=0", lambda d: d["updates"] == d["alone"] == 12 and d["batches"] == 96),
    ("StragglerBench factor=1 workers=8 jitter=0", lambda d: d["waiting"] == 0 and d["free_batches"] == 96),
    # one of them slow: all at its pace
    ("StragglerBench factor=4 workers=4 jitter=0", lambda d: d["updates"] == 3 and d["batches"] == d["alone"] == 12),
    ("StragglerBench factor=4 workers=4 jitter=0", lambda d: d["free_batches"] == 39 and 0.5 < d["waiting"] < 0.6),
    (
        "StragglerBench factor=4 workers=4 jitter=0",
        lambda d: [d["batches"] / 48, d["free_batches"] / 48] == d["theory"],
    ),
    ("StragglerBench factor=6 workers=8 jitter=0", lambda d: d["updates"] == 2 and d["free_batches"] == 7 * 12 + 2),
    # nobody is slow, but everybody is sometimes late
    ("StragglerBench factor=1 workers=8 jitter=0.5", jitter_costs),
    # the picture is that of a run
    ("StragglerBench factor=4 workers=4 jitter=0", as_a_run_has_it),
    ("StragglerBench factor=3 workers=5 jitter=0.3", as_a_run_has_it),
]


def worker(collect, meets=2, own=False, skips=False):
    """A worker of exercise 02.2 with a mistake; ``collect``: rows of each batch -> weight of each gradient."""

    def body(i, model, batches, board, meet, lr):
        parameters = list(model.parameters())
        for x, y in batches:
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            board[i] = len(y), [p.grad for p in parameters]
            if not (skips and i == 2):
                meet()
            sizes = [entry[0] for entry in board if entry is not None]
            weights = [float(j == i) for j in range(len(sizes))] if own else collect(sizes)
            with torch.no_grad():
                for k, p in enumerate(parameters):
                    for j, weight in enumerate(weights):
                        p -= lr * weight * board[j][1][k]
            if meets == 2:
                meet()

    return body


def summed(sizes):
    return [1.0] * len(sizes)


def plain(sizes):
    return [1 / len(sizes)] * len(sizes)


def by_rows(sizes):
    return [size / sum(sizes) for size in sizes]


def reads_too_early(i, model, batches, board, meet, lr):
    for x, y in batches:
        F.cross_entropy(model(x), y).backward()
        board[i] = [p.grad for p in model.parameters()]
        first = board[0][0] + board[1][0] + board[2][0]
        meet()
        assert first is not None


MUTANTS = {
    "02.1": {
        "N workers make N times the updates": ({"updates": 72, "barrier": 25.6, "free": 54.04}, "N times the updates"),
        "all at the mean pace": ({"updates": 22.5, "barrier": 48, "free": 54.04}, "mean"),
        "delays multiply": ({"updates": 8, "barrier": 25.6, "free": 54.04}, "at the same time"),
        "an update is one batch": ({"updates": 12, "barrier": 32 * 12 / 90, "free": 54.04}, "one batch a round"),
        "without the barrier all are at the slowest one's pace too": (
            {"updates": 12, "barrier": 25.6, "free": 25.6},
            "Nobody waits",
        ),
        "a slow worker is a lost worker": ({"updates": 12, "barrier": 25.6, "free": 42.67}, "not gone"),
        "the mean of the times": ({"updates": 12, "barrier": 25.6, "free": 48}, "mean of the times"),
    },
    "02.2": {
        "the sum": (worker(summed), "added, not averaged"),
        "a plain mean, with unequal batches": (worker(plain), "plain mean"),
        "rows, but not divided by all": (worker(lambda sizes: [float(s) for s in sizes]), "add up to 1"),
        "one barrier only": (worker(by_rows, meets=1), "next round"),
        "everyone writes its own gradient": (worker(by_rows, own=True), "its own way"),
        "one rank skips the barrier": (worker(by_rows, skips=True), "worker by worker"),
        "reads before the barrier": (reads_too_early, "before the barrier"),
        "nothing is written": (worker(lambda sizes: [0.0] * len(sizes)), "no weight changes"),
        "the name of it": ("answer", "cannot be called"),
    },
    "02.3": {
        "equal batches": ([60, 60, 60, 60], "equal batches"),
        "in proportion to the speeds": ([87, 87, 44, 22], "takes 1 s"),
        "the slow take more": ([30, 30, 60, 120], "fewer rows"),
        "the slowest one is dropped": ([96, 96, 48, 0], "at least one row"),
        "another batch": ([96, 96, 38, 9], "239 rows"),
    },
}
