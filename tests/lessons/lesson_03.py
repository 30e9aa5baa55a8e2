"""Lesson 03: lost writes are rare and stale ones are not; wrong answers and what they are told."""

from __future__ import annotations

import threading
from statistics import median

A_LOCK = threading.Lock()


def state(write, moves):
    return f"Scheduler write='{write}' moves='{moves}'"


def stale_far_above_lost(data):
    """The least stale run of all against the most lost of all, so that no spread explains it."""
    lost = max(share for runs in data["lost_runs"] for share in runs)
    return min(share for runs in data["stale_runs"] for share in runs) > 1000 * max(lost, 1e-9)


def storing_loses_what_adding_keeps(data):
    """A counter that stores copies loses hundreds of times what a tensor of any size loses by add_."""
    return median(data["counted"]) > 10 * max(median(runs) for runs in data["added"])


def stale_but_not_lost(data):
    return data["written"] == 6 and data["stale"] == 3 and data["lost"] == 0


def stale_and_lost(data):
    return data["written"] == 6 and data["stale"] == 3 and data["lost"] == 3


FINDINGS = [
    (state("add in place", "AB" * 9), stale_but_not_lost),
    (state("store a copy", "AB" * 9), stale_and_lost),
    (state("store a copy", "AAABBB" * 3), lambda data: data["stale"] == 0 and data["lost"] == 0),
    (state("add in place", "ABABAB"), stale_far_above_lost),
    (state("store a copy", "ABABAB"), storing_loses_what_adding_keeps),
    (state("store a copy", "ABBBBBBAABAAAAAABB"), lambda data: data["lost"] == 4 and data["written"] == 6),
]


def right(**changes):
    return {"a": 1, "b": 0, "c": 1, "d": 2, "e": 48, **changes}


def as_it_was(i, j, w, locks, compute):
    first, second = w[i], w[j]
    locks[i].take()
    locks[j].take()
    w[i], w[j] = compute(first, second)
    locks[j].give()
    locks[i].give()


def order_only(i, j, w, locks, compute):
    first, second = w[i], w[j]
    for k in sorted((i, j)):
        locks[k].take()
    w[i], w[j] = compute(first, second)
    for k in (i, j):
        locks[k].give()


def read_inside_only(i, j, w, locks, compute):
    locks[i].take()
    locks[j].take()
    w[i], w[j] = compute(w[i], w[j])
    locks[j].give()
    locks[i].give()


def no_locks(i, j, w, locks, compute):
    w[i], w[j] = compute(w[i], w[j])


def in_place_without_locks(i, j, w, locks, compute):
    first, second = w[i], w[j]
    after, later = compute(first, second)
    w[i] += after - first
    w[j] += later - second


def lock_around_the_write(i, j, w, locks, compute):
    new = compute(w[i], w[j])
    for k in sorted((i, j)):
        locks[k].take()
    w[i], w[j] = new
    for k in (i, j):
        locks[k].give()


def one_big_lock(i, j, w, locks, compute):
    locks[0].take()
    w[i], w[j] = compute(w[i], w[j])
    locks[0].give()


def never_given_back(i, j, w, locks, compute):
    for k in sorted((i, j)):
        locks[k].take()
    w[i], w[j] = compute(w[i], w[j])


def spins(i, j, w, locks, compute):
    while locks[i].holder or locks[j].holder or True:
        pass


def real_lock(i, j, w, locks, compute):
    with A_LOCK:
        w[i], w[j] = compute(w[i], w[j])


MUTANTS = {
    "03.1": {
        "every race loses an update": (right(b=1), "in place"),
        "what is not lost is fresh": (right(c=0), "does not mean fresh"),
        "one race loses one update": (right(d=1), "more than one"),
        "the GIL makes it safe: nothing is lost": (right(a=0, d=0), "without a lock"),
        "both of two equal reads are stale": (right(c=2), "first write is fresh"),
        "the late write does not count": (right(e=36), "stores last"),
    },
    "03.2": {
        "untouched: a deadlock": (as_it_was, "order"),
        "the locks are in order, the reads still outside": (order_only, "lost"),
        "the reads are inside, the order is not": (read_inside_only, "deadlock"),
        "the GIL makes it safe: no locks": (no_locks, "lost"),
        "adding in place is enough": (in_place_without_locks, "stale"),
        "only the write is locked": (lock_around_the_write, "lost"),
        "one lock for everything": (one_big_lock, "in vain"),
        "a lock is not given back": (never_given_back, "give back"),
        "an endless loop": (spins, "never waits"),
        "a lock that the clock does not see": (real_lock, "a_lock"),
    },
    "03.3": {
        "taking turns": ("AB" * 9, "late store"),
        "one after the other": ("AAABBB" * 3, "before the other one writes"),
        "one late store": ("A" + "B" * 9 + "A" * 8, "late store"),
        "too long": ("ABB" * 9, "nine letters"),
    },
}
