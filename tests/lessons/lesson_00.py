"""What lesson 00 shows, and the mistakes that its checks must tell apart."""

import itertools

import minilayup as lu

FINDINGS = [
    ("RaceInSmall factor=1", lambda data: max(data["samples"]) == min(data["samples"])),
    ("RaceInSmall factor=4", lambda data: data["kept"][0] < 0.3 and min(data["kept"][1:]) > 0.78),
    ("RaceInSmall factor=10", lambda data: data["kept"][0] < 0.12 and min(data["kept"][1:]) > 0.74),
    # 23 points between them at 10 times slower; over three seeds each of them varies by less than 5
    ("RaceInSmall factor=10", lambda data: min(data["accuracy"][1:]) > data["accuracy"][0] + 0.1),
]

seeds = itertools.count()
task = lu.tasks.fashion_mnist("mlp")
settings = {"samples": 640, "batch_size": 32, "progress": False}

MUTANTS = {
    "00.1": {
        "all go at the slowest one's pace": (25, "nobody waits"),
        "a slow worker is a lost worker": (87.5, "not gone"),
        "who does not wait loses nothing": (100, "itself does less"),
        "all lose alike": (60.0, "each of the seven"),
    },
    "00.2": {
        "real threads": (lambda: lu.train(task, lu.Hogwild(3), slow={0: 4.0}, **settings), "real threads"),
        "another seed each time": (
            lambda: lu.train(task, lu.Hogwild(3), slow={0: 4.0}, seed=next(seeds), engine="virtual", **settings),
            "seed",
        ),
        "the wrong worker": (
            lambda: lu.train(task, lu.Hogwild(3), slow={1: 4.0}, engine="virtual", **settings),
            "counted from 0",
        ),
        "the result of the call": (lu.train(task, lu.Hogwild(3), engine="virtual", **settings), "cannot be called"),
        "a method that waits": (
            lambda: lu.train(task, lu.SyncSGD(3), slow={0: 4.0}, engine="virtual", **settings),
            "SyncSGD",
        ),
    },
    "00.3": {
        "few workers": ((4, 10), "share of all the work"),
        "hardly slower": ((100, 4), "slower"),
        "the other way round": ((6, 20), "share of all the work"),
    },
}
