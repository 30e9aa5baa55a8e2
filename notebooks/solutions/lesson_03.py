# %% 03.1
# Write down what each thread has read, and then what each write does with it; w starts at 64, a step is a quarter of
# what was read.
#
# a  A and B both read 64.  A stores 48, B stores 48 over it: A's update is lost, 1.
# b  In place, A's write gives 64 - 16 = 48, B's takes that and subtracts its own 16: 32.  Both are in it: 0 lost.
# c  B's read was version 0, and A's write came before B's: staleness 1.  A's write itself is fresh: 1 stale write.
# d  A reads 64; B makes two whole updates, 48 and 36; then A stores 64 - 16.  Both of B's updates are lost: 2.
# e  What A stores: 48.
answer_03_1 = {"a": 1, "b": 0, "c": 1, "d": 2, "e": 48}


# %% 03.2
# Two faults.  The locks were taken in the order of the pair, so that (0, 1) and (1, 0) could each hold what the other
# waits for: take them in one order for all, here by number.  And the numbers were read before the locks were held: by
# the time of the write they could be old, and a store of an old copy loses updates.  Read, compute and write must lie
# between the last take and the first give.  One lock for everything would be right as well, but would make workers
# wait that have nothing in common.
def update(i, j, w, locks, compute):
    """One update of two shared numbers: nothing lost, nothing old, no deadlock."""
    low, high = sorted((i, j))
    locks[low].take()
    locks[high].take()
    w[i], w[j] = compute(w[i], w[j])
    locks[high].give()
    locks[low].give()


answer_03_2 = update


# %% 03.3
# An old copy costs most when it is stored late.  A reads at the very beginning (64, nothing in it).  B makes two whole
# updates; then A stores its old copy, and both are lost.  Now B reads that copy, which holds one update.  A makes its
# two remaining updates, and B stores last: w holds A's first update and B's last, and four of six are lost.
# No order loses more: whoever writes last has read after its own first two updates were written, and that read holds at
# least one update.
answer_03_3 = "A" + "BBBBBB" + "AA" + "B" + "AAAAAA" + "BB"
