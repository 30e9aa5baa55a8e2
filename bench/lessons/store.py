"""How the scripts beside this file write what they have measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "data" / "results"


def rounded(value: Any) -> Any:
    """Four digits that count, of a number or of all numbers in lists and dicts; whole numbers stay as they are."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def write(lesson: str, everything: dict[str, Any], quick: bool = False) -> None:
    """Write ``data/results/lesson04.json``, for "04"; a quick try goes into the current folder instead.

    Indented JSON with every list of numbers on one line.
    """
    text = json.dumps(everything, indent=1, allow_nan=False, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]", lambda found: "[" + " ".join(found[0][1:-1].split()) + "]", text)
    path = (Path() if quick else RESULTS) / f"lesson{lesson}.json"
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{path}: {len(text) / 1000:.0f} kB", flush=True)
