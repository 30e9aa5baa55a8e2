"""What lesson 07 says in numbers: the two-by-two ablation at 3 and 12 threads, on the virtual clock.

python bench/lessons/lesson_07.py          (about 6 minutes on one core; writes data/results/lesson07.json)
python bench/lessons/lesson_07.py --quick  (a minute: one seed, fewer bisections; writes into the current folder)
"""

import sys

import rates
import torch
from store import write

from minilayup.course import small_task


def main(quick: bool) -> None:
    torch.set_num_threads(1)
    seeds, steps = ([0], 4) if quick else (list(range(8)), 7)
    write("07", rates.lesson07(small_task(), seeds, steps), quick)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
