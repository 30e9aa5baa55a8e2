"""The interactive figures of the lessons, one a file.  ``figures.RaceInSmall()`` in a notebook cell shows one."""

from .figure import Figure, Prediction
from .live import LiveRun
from .race_in_small import RaceInSmall

FIGURES: dict[str, type[Figure]] = {"00": RaceInSmall}
"""The figure of each lesson."""

__all__ = ["FIGURES", "Figure", "LiveRun", "Prediction", "RaceInSmall"]
