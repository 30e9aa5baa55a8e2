# %% 06.1
# The forward threads can do 2 / 10 ms = 200 batches/s, the backward threads 3 / 24 ms = 125, eight cores 235.
# The backward threads are the slowest part. Batches pile up before them until every view of the pool is taken:
# 2 + 3 + 3 = 8, and each keeps its 5 MB.
throughput = min(2 / 0.010, 3 / 0.024, 8 / (0.010 + 0.024))
views = 2 + 3 + 3
answer_06_1 = {"batches/s": throughput, "in flight": views, "MB": 5 * views}

# %% 06.2
# Four cores do 4 / 35 ms = 114 batches/s, one forward thread 100. Three backward threads do 120: the forward thread is
# the slowest part, the queue stays empty, and slack would buy nothing. Two do only 80.
# Two cores do 57 batches/s whatever the threads. 1 forward : 2 backward could do 80, so it keeps both cores busy; three
# threads and three views, so no slack.
answer_06_2 = {"4 cores": (1, 3, 0), "2 cores": (1, 2, 0)}

# %% 06.3
# Three faults. The queue was told of one producer and has two, so it did not end as it should. Every batch had a new
# view, so nothing made the forward programs wait. And a view went home before its backward pass was done.
from functools import partial


def connect(site):
    ready = site.clock.queue(producers=site.forward)
    homes = [site.clock.queue() for _ in range(site.forward)]
    for home in homes:
        for _ in range(site.each):
            home.put(site.view())

    def forward(home):
        for batch in site.batches():
            view = home.get()
            ready.put((home, view, view.forward(batch)))
        ready.close()

    def backward():
        for home, view, loss in ready:
            view.backward(loss)
            home.put(view)

    return [partial(forward, home) for home in homes] + [backward] * site.backward


answer_06_3 = connect
