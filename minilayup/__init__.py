"""minilayup: asynchronous SGD that can be touched, from one step of sync SGD to layer-wise gossip (LayUp).

>>> import minilayup as lu
>>> run = lu.train(lu.tasks.fashion_mnist(model="cnn"), lu.LayUp(workers=2), seconds=20)
>>> print(run.summary())
"""

from . import rules, tasks, theory
from .clocks import RealClock, VirtualClock
from .compare import Comparison, compare
from .engine import Threads, Virtual, train
from .errors import ArgumentError
from .methods import PDASGD, SGD, Hogwild, LayUp, Method, SyncSGD
from .result import Point, Result
from .run import Diverged, Run
from .tasks import Task
from .threads import Deadlock, Program, ProgramError, Stop
from .transport import Link

__version__ = "0.1.0"

__all__ = [
    "PDASGD", "SGD", "ArgumentError", "Comparison", "Deadlock", "Diverged", "Hogwild", "LayUp", "Link", "Method",
    "Point", "Program", "ProgramError", "RealClock", "Result", "Run", "Stop", "SyncSGD", "Task", "Threads", "Virtual",
    "VirtualClock", "compare", "rules", "tasks", "theory", "train",
]  # fmt: skip
