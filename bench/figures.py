"""Draw each lesson's static picture anew, and write the stored numbers into the notebooks' prose: `make figures`.

python bench/figures.py        writes notebooks/figures/*.svg and notebooks/*.ipynb
"""

from __future__ import annotations

from pathlib import Path

from minilayup.course.lesson import LESSONS
from minilayup.course.notebook import refresh
from minilayup.figures import FIGURES

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def main() -> None:
    for number, name in LESSONS.items():
        if number in FIGURES:
            print("drew", FIGURES[number]().save(NOTEBOOKS / "figures" / f"{number}_{name}.svg").name)
        notebook = NOTEBOOKS / f"{number}_{name}.ipynb"
        if notebook.exists() and refresh(notebook):
            print("wrote new numbers into", notebook.name)


if __name__ == "__main__":
    main()
