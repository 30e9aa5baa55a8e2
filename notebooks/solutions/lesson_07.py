"""Reference answers of lesson 07."""

# %% 07.1
# While one forward pass takes 1, two forward threads can begin 2 batches, but four backward threads finish only 4/3.
# The slower group decides: 4/3 batches. Six coupled threads do 6 batches in the 1 + 3 that each takes: 6/4. So it is
# (4/3) / (6/4) = 8/9: the two forward threads wait a third of their time.
answer_07_1 = (4 / 3) / (6 / 4)

# %% 07.2
# The mean of the eight differences, and its standard error:
import statistics

from minilayup import course

threads = course.stored("lesson07")["threads"]


def says(count, larger, smaller):
    pairs = zip(threads[count][larger]["rates"], threads[count][smaller]["rates"])
    differences = [one - other for one, other in pairs]
    mean, error = statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5
    return "not shown" if abs(mean) <= 2 * error else "holds" if mean > 0 else "does not hold"


# Layer-wise writing: shown at 12 threads, and at 3 coupled ones the opposite is. Decoupling: nothing is shown.
# Stashing: shown, though the counted staleness is higher.
answer_07_2 = {
    "a": says("t12", "hogwild_layer", "hogwild_block"),
    "b": says("t12", "pdasgd", "dasgd"),
    "c": says("t12", "pdasgd", "hogwild_layer"),
    "d": says("t3", "hogwild_layer", "hogwild_block"),
    "e": says("t12", "pdasgd_stashed", "pdasgd"),
}

# %% 07.3
# Six Hogwild! threads see more samples (7,600 against 6,400), but at the rates that are fast enough their staleness
# makes seeds differ by ten points. Layer-wise writing lowers it; so does slack 0, which bounds what is in flight.
import minilayup as lu

answer_07_3 = (lu.PDASGD(forward=2, backward=4, slack=0), 0.06)
