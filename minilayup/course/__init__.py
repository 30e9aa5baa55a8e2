"""The course in the notebooks: what a lesson's set-up cell opens, and the checks of its exercises.

>>> from minilayup import course
>>> lesson = course.open("03")
>>> check, reveal = lesson.check, lesson.reveal
"""

from .exercise import Exercise, Verdict
from .lesson import Lesson, alone, open, small_task, stored

__all__ = ["Exercise", "Lesson", "Verdict", "alone", "open", "small_task", "stored"]
