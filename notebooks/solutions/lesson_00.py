"""Reference answers of lesson 00."""

# %% 00.1
# Nobody waits, so seven of the eight workers do all that they did before, and the slow one does a quarter of it:
# (7 + 1/4) / 8. In general (n - 1 + 1/k) / n, which is minilayup.theory.straggler_speed(n, k)[1].
answer_00_1 = 100 * (7 + 1 / 4) / 8

# %% 00.2
# Three faults: it ran on real threads, where the machine decides who writes first; its seed was drawn anew;
# and it slowed down worker 1. (The samples were right: 20 batches of 32.)
import minilayup as lu


def answer_00_2():
    return lu.train(
        lu.tasks.fashion_mnist("mlp"),
        lu.Hogwild(3),
        samples=640,
        batch_size=32,
        engine=lu.Virtual(),
        slow={0: 4.0},
        seed=0,
    )


# %% 00.3
# Waiting leaves 1/k, whatever the number of workers: k must be above 5. Not waiting leaves (n - 1 + 1/k) / n: the more
# workers there are, the less one of them matters. With k = 6 it takes more than 16.7 of them.
answer_00_3 = (20, 6)
