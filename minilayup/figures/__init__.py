"""The interactive figures of the lessons, one a file.  ``figures.RaceInSmall()`` in a notebook cell shows one."""

from .ablation import Ablation
from .control_sampler import ControlSampler
from .figure import Figure, Prediction
from .live import LiveRun
from .measured_step import measure_step
from .race_in_small import RaceInSmall
from .ratio_machine import RatioMachine
from .scheduler import Scheduler
from .staleness_lab import StalenessLab
from .step_dissector import StepDissector
from .straggler_bench import StragglerBench
from .update_waterfall import UpdateWaterfall

FIGURES: dict[str, type[Figure]] = {
    "00": RaceInSmall,
    "00 sampler": ControlSampler,
    "01": StepDissector,
    "02": StragglerBench,
    "03": Scheduler,
    "04": StalenessLab,
    "05": UpdateWaterfall,
    "06": RatioMachine,
    "07": Ablation,
}
"""The figure of each lesson, and lesson 00's control sampler."""

__all__ = [
    "FIGURES",
    "Ablation",
    "ControlSampler",
    "Figure",
    "LiveRun",
    "Prediction",
    "RaceInSmall",
    "RatioMachine",
    "Scheduler",
    "StalenessLab",
    "StepDissector",
    "StragglerBench",
    "measure_step",
    "UpdateWaterfall",
]
