"""What the tests of the lessons share: a lesson's own file, and where its notebook and its solutions lie."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def load(number: str) -> ModuleType:
    """``tests/lessons/lesson_04.py`` for "04": its FINDINGS and MUTANTS."""
    path = Path(__file__).parent / f"lesson_{number}.py"
    spec = importlib.util.spec_from_file_location(f"lesson_{number}_of_the_tests", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
