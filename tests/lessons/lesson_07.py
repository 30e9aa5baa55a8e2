"""What lesson 07 shows, and the mistakes that its checks must tell apart."""

import minilayup as lu
from minilayup.course.lesson_07 import judge


def layer_wise_raises_the_rate(data):
    """Over block writing, coupled and decoupled, by more than two standard errors of the pairs."""
    block, layer, dasgd, pdasgd = data["rates"]
    return judge(layer, block) == judge(pdasgd, dasgd) == "holds"


def decoupled_is_not_faster(data):
    return max(data["speed_up"][2:]) < 0.95 * min(data["speed_up"][:2])


def decoupling_does_not_raise_the_rate(data):
    block, layer, dasgd, pdasgd = data["rates"]
    return judge(dasgd, block) != "holds" and judge(pdasgd, layer) != "holds"


LIVE = 'Ablation threads="12" weights="live" x="seconds"'
FEW = 'Ablation threads="3" weights="live" x="samples"'
STASHED = 'Ablation threads="12" weights="stashed" x="updates"'

FINDINGS = [
    (LIVE, layer_wise_raises_the_rate),
    (LIVE, decoupled_is_not_faster),
    (LIVE, decoupling_does_not_raise_the_rate),
    (FEW, decoupled_is_not_faster),
    (FEW, decoupling_does_not_raise_the_rate),
    (STASHED, layer_wise_raises_the_rate),
    (STASHED, lambda data: min(data["rate"]) > 0.054 and max(data["memory"]) > 3000),  # live: at most .051 + .0028
]

RIGHT = {"a": "holds", "b": "holds", "c": "not shown", "d": "does not hold", "e": "holds"}

MUTANTS = {
    "07.1": {
        "as fast as six threads": (1.0, "ever waits"),
        "against one thread": (16 / 3, "one thread"),
        "three times faster because it decouples": (3.0, "at most"),
        "only backward threads work": (4 / 6, "forward threads work"),
        "the forward threads decide": (0.5, "slower one"),
    },
    "07.2": {
        "all claims hold": (dict.fromkeys("abcde", "holds"), "Look at c"),
        "staleness is the judge": (RIGHT | {"e": "does not hold"}, "Look at e"),
        "overlapping spreads show nothing": (RIGHT | {"a": "not shown"}, "one seed each"),
        "the means alone": (RIGHT | {"c": "holds"}, "seed by seed"),
        "layer-wise writing always helps": (RIGHT | {"d": "holds"}, "Look at d"),
        "yes and no": (dict.fromkeys("abcde", "yes"), "none of the three"),
    },
    "07.3": {
        "the most samples": ((lu.Hogwild(6), 0.03), "staleness"),
        "backward threads starve": ((lu.PDASGD(4, 2, slack=0), 0.03), "wait"),
        "safe and slow": ((lu.PDASGD(2, 4, slack=0), 0.005), "slow"),
        "seven threads": ((lu.PDASGD(3, 4), 0.06), "count"),
        "far beyond the border": ((lu.Hogwild(6), 5.0), "diverged"),
    },
}
