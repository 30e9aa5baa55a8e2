"""The methods, one file each; the loop bodies are the papers' pseudo-code."""

from .base import Method
from .hogwild import Hogwild
from .layup import LayUp
from .pd_asgd import PDASGD
from .sgd import SGD
from .sync_sgd import SyncSGD

BY_NAME: dict[str, type[Method]] = {
    "sgd": SGD,
    "sync-sgd": SyncSGD,
    "hogwild": Hogwild,
    "pd-asgd": PDASGD,
    "layup": LayUp,
}

__all__ = ["BY_NAME", "SGD", "Hogwild", "LayUp", "Method", "PDASGD", "SyncSGD"]
