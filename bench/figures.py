"""Draw each lesson's static picture anew, and write its alt text and the stored numbers into the notebooks.

`make figures`, or python bench/figures.py: writes notebooks/figures/*.svg and notebooks/*.ipynb
"""

from __future__ import annotations

from pathlib import Path

from minilayup.course.lesson import LESSONS
from minilayup.course.notebook import refresh
from minilayup.figures import FIGURES

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def main() -> None:
    for number, name in LESSONS.items():
        figure = FIGURES[number]()
        figure.save(NOTEBOOKS / "figures" / f"{number}_{name}.svg")
        changed = refresh(NOTEBOOKS / f"{number}_{name}.ipynb", alt=f"{figure.finding} {figure.text()}")
        print(f"{number}: picture drawn{', notebook changed' * changed}")


if __name__ == "__main__":
    main()
