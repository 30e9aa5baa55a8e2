"""What lesson 06 shows, and the mistakes that its checks must tell apart."""

from functools import partial
from statistics import fmean

from minilayup.course import stored
from minilayup.figures.forward_backward import ideal, virtual_run
from minilayup.figures.ratio_machine import BACKWARDS

BETA = round(stored("lesson06")["cnn"]["beta"], 2)
SEEDS = range(3)


def spread(values):
    return max(values) - min(values)


def slack_buys_staleness_and_no_speed(data):
    """1 forward : 1 and 1 forward : 2 backward from slack 0 to 8, three seeds each."""
    for backward in (1, 2):
        small, large = ([virtual_run(1, backward, slack, 1.0, BETA, seed) for seed in SEEDS] for slack in (0, 8))
        for more, less in zip(large, small):
            assert more.staleness > less.staleness + 7 > less.staleness + 20 * spread([r.staleness for r in small])
            assert more.in_flight > 3 * less.in_flight
            assert more.rate < 1.07 * less.rate
    rows = data["virtual_slack"]
    return rows["staleness"][-1] > 4 * rows["staleness"][0] and rows["speed_up"][-1] < 1.05 * rows["speed_up"][0]


def more_backward_threads_stop_helping(data):
    """Two cores: the step to two backward threads helps, those to three and more do not, for any seed."""
    for seed in SEEDS:
        speed = [virtual_run(1, b, 1, 1.0, BETA, seed).speed_up(2) for b in BACKWARDS]
        assert speed[1] > 1.3 * speed[0] and max(speed[2:]) < 1.03 * speed[1]
    speed = data["closed"]["speed_up"]
    return speed[1] > 1.3 * speed[0] and max(speed) < 1.02 * speed[1] and data["limit"] == "the cores"


def with_cores_enough_the_forward_threads_stop_it(data):
    speed = data["virtual"]["speed_up"]
    return speed[2] > 2.2 * speed[0] and speed[5] < 1.03 * speed[2] and data["limit"] == "the forward threads"


def closed_form_and_virtual_clock_agree(data):
    """Away from the layout in which both groups are equally fast: throughput within 5 %, in flight within 10 %,
    staleness within 20 % (the closed form takes all layers to be read at once)."""
    for forward, backward, slack, beta in [
        (1, 1, 0, 2.4), (1, 1, 6, 2.4), (1, 2, 0, 2.4), (1, 2, 4, 2.4), (1, 3, 2, 2.4), (2, 1, 1, 2.4), (2, 3, 1, 2.4),
        (2, 6, 3, 2.4), (3, 6, 2, 2.4), (1, 2, 2, 4.0), (1, 3, 8, 4.0), (2, 5, 4, 1.0), (1, 3, 1, 1.0), (1, 1, 3, 3.0),
    ]:  # fmt: skip
        form = ideal(forward, backward, 1.0, beta, slack, 99)
        runs = [virtual_run(forward, backward, slack, 1.0, beta, seed) for seed in SEEDS]
        assert abs(fmean(r.rate for r in runs) / form.rate - 1) < 0.05
        assert abs(fmean(r.in_flight for r in runs) / form.in_flight - 1) < 0.1
        assert abs(fmean(r.staleness for r in runs) / form.staleness - 1) < 0.2
    return abs(data["virtual_speed_up"] / data["speed_up"] - 1) < 0.05


def the_timers_are_the_library_s_runs(data):
    """The runs with real gradients and those whose passes only take time, in `data/results/lesson06.json`."""
    for cell in stored("lesson06")["virtual"].values():
        assert abs(cell["rate"] / cell["timer_rate"] - 1) < 0.05
        assert abs(cell["staleness"] / cell["timer_staleness"] - 1) < 0.12
    return data["in_flight"] == data["pool"]


def one_forward_two_backward_is_the_direction(data):
    """Against 2 forward : 1 backward: twice the throughput and no more staleness, for each seed."""
    for seed in SEEDS:
        one, other = virtual_run(1, 2, 1, 1.0, BETA, seed), virtual_run(2, 1, 1, 1.0, BETA, seed)
        assert one.rate > 1.8 * other.rate and one.staleness < other.staleness
    return data["limit"] == "the backward threads"


def real_threads_are_not_faster_with_more_backward_threads(data):
    """The stored windows, two cores: apart by more than their quartiles; and the pool is what is in flight."""
    speed = dict(
        zip(data["measured"]["speed"]["backward"], zip(*(data["measured"]["speed"][k] for k in ("low", "high"))))
    )
    assert speed[6][1] < speed[2][0], "six backward threads against two: upper quartile below the lower one"
    for slack, tau in zip(data["measured_slack"]["counts"]["slack"], data["measured_slack"]["counts"]["staleness"]):
        assert abs(tau - (1 + slack)) < 0.2 * (1 + slack)
    return len(data["measured_slack"]["counts"]["slack"]) >= 4


FINDINGS = [
    ("RatioMachine forward=1 backward=2 slack=1 cores=2", slack_buys_staleness_and_no_speed),
    ("RatioMachine forward=1 backward=6 slack=1 cores=2", more_backward_threads_stop_helping),
    ("RatioMachine forward=1 backward=6 slack=1 cores=12", with_cores_enough_the_forward_threads_stop_it),
    ("RatioMachine forward=2 backward=3 slack=1 cores=12", closed_form_and_virtual_clock_agree),
    ("RatioMachine forward=1 backward=2 slack=4 cores=12", the_timers_are_the_library_s_runs),
    ("RatioMachine forward=2 backward=1 slack=1 cores=12", one_forward_two_backward_is_the_direction),
    ("RatioMachine forward=1 backward=1 slack=1 cores=2", real_threads_are_not_faster_with_more_backward_threads),
]


def connected(producers=2, pooled=True, home_first=False, serial=False):
    """Programs for exercise 06.3 with some of the faults."""

    def connect(site):
        ready = site.clock.queue(producers)
        homes = [site.clock.queue() for _ in range(site.forward)]
        for home in homes * site.each:
            home.put(site.view())

        def forward(home):
            for batch in site.batches():
                view = home.get() if pooled else site.view()
                loss = view.forward(batch)
                if serial:
                    view.backward(loss)
                    home.put(view)
                else:
                    ready.put((home, view, loss))
            ready.close()

        def backward():
            for home, view, loss in ready:
                for step in (home.put, view.backward) if home_first else (view.backward, home.put):
                    step(view if step == home.put else loss)

        return [*(partial(forward, home) for home in homes), *[backward] * site.backward]

    return connect


def predicted(rate, in_flight, mb):
    return {"batches/s": rate, "in flight": in_flight, "MB": mb}


MUTANTS = {
    "06.1": {
        "the forward threads set the pace": (predicted(200, 8, 40), "forward threads can do"),
        "every core is busy": (predicted(235, 8, 40), "eight cores"),
        "each thread does both passes": (predicted(147, 8, 40), "five threads"),
        "the slack is all that is in flight": (predicted(125, 3, 15), "slack alone"),
        "a batch for each thread": (predicted(125, 5, 25), "for each thread"),
        "only waiting batches keep activations": (predicted(125, 8, 15), "activations"),
    },
    "06.2": {
        "more backward threads are always faster": ({"4 cores": (1, 6, 0), "2 cores": (1, 2, 0)}, "the threads"),
        "twice as many, for twice the time": ({"4 cores": (1, 2, 0), "2 cores": (1, 2, 0)}, "the backward threads"),
        "more forward threads": ({"4 cores": (2, 1, 0), "2 cores": (1, 2, 0)}, "the backward threads"),
        "all cores busy, never mind the pool": ({"4 cores": (2, 3, 0), "2 cores": (1, 2, 0)}, "every view"),
        "slack makes it faster": ({"4 cores": (1, 3, 4), "2 cores": (1, 2, 0)}, "the slack"),
        "one layout fits all": ({"4 cores": (1, 3, 0), "2 cores": (1, 3, 0)}, "3 views"),
        "a thread for each core": ({"4 cores": (1, 3, 0), "2 cores": (1, 1, 0)}, "the backward threads"),
    },
    "06.3": {
        "as it was": (connected(producers=1, pooled=False, home_first=True), "deadlock"),
        "never closed": (connected(producers=1), "deadlock"),
        "a pool without bounds": (connected(pooled=False), "in flight at once"),
        "home before its backward pass": (connected(home_first=True), "still held"),
        "forward and backward in one program": (connected(serial=True), "batches a virtual second"),
    },
}
