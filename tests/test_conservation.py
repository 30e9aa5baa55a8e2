"""What each exchange rule says it conserves, it conserves: masses exactly, sums to rounding, messages counted."""

import json
import random
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import minilayup as lu
from minilayup.clocks import RealClock, VirtualClock
from minilayup.gossip import EXCHANGES, GRAIN, Average, PushSum
from minilayup.replica import Replica
from minilayup.threads import Program
from minilayup.topology import TOPOLOGIES, choose_peer, peers_of
from minilayup.transport import InProcess, Link

LINKS = {
    "at once": None,
    "latency": Link(latency=0.7),
    "bandwidth": Link(latency=0.1, bandwidth=300),
    "loss, counted": Link(latency=0.5, loss=0.3),
    "loss, returned": Link(latency=0.5, loss=0.3, lost="returned"),
}


class Gossip:
    """Replicas that write and put at random on a clock, driven through the transport alone."""

    def __init__(self, exchange, workers=4, graph="complete", link=None, seed=0, clock=None):
        self.clock, self.workers, self.seed = clock or VirtualClock(), workers, seed
        self.exchange, self.peers = EXCHANGES[exchange](), peers_of(graph, workers)
        noise = torch.Generator().manual_seed(seed)
        self.replicas = []
        for i in range(workers):
            replica = Replica(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)).double(), i, writers=workers + 1)
            for layer in replica.layers:
                for tensor in layer.tensors:
                    tensor.copy_(torch.randn(tensor.shape, generator=noise, dtype=tensor.dtype))
                if self.exchange.sends_steps:
                    layer.steps = torch.zeros_like(layer.flat)
            self.replicas.append(replica)
        self.layers = len(self.replicas[0].layers)
        self.exchange.begin(self.layers, workers)
        self.transport = InProcess(self.clock, self.exchange, link, writers=workers + 1)
        self.start = [self.flat(k).clone() for k in range(self.layers)]
        self.steps = [torch.zeros_like(start) for start in self.start]  # [layer][worker]: what each has written
        self.weighted_steps = [torch.zeros_like(start[0]) for start in self.start]  # times the mass it had then
        self.gone = [torch.zeros_like(start[0]) for start in self.start]  # mass times weights of lost messages
        lost = self.exchange.lost
        self.exchange.lost = lambda i, j, mine, message: (lost(i, j, mine, message), self._note_loss(mine, message))

    def _note_loss(self, mine, message):
        self.gone[mine.index] += message.mass * message.flat

    def flat(self, k):
        """All workers' storage of layer k: [worker, numbers]."""
        return torch.stack([replica.layers[k].flat for replica in self.replicas])

    def masses(self, k):
        return [self.exchange.ledger.mass(k, i) for i in range(self.workers)]

    def weighted_sum(self, k):
        return sum(mass * x for mass, x in zip(self.masses(k), self.flat(k)))

    def on_its_way(self, k):
        """Messages of layer k that have left and not arrived: (the transport's method, message)."""
        entries = [entry for *_, entry in self.clock._ready if isinstance(entry, partial)]
        return [(entry.func, entry.args[-1]) for entry in entries if entry.args[-2] == k]

    def write(self, i, k, step):
        """Worker i adds a step to its layer k."""
        layer = self.replicas[i].layers[k]
        layer.flat.add_(step)
        if layer.steps is not None:
            layer.steps.add_(step)
        self.steps[k][i] += step
        self.weighted_steps[k] += self.exchange.ledger.mass(k, i) * step

    def run(self, puts=60, writes=True, watch=lambda: None):
        """Every worker writes and puts each layer so many times; ``watch`` is called after each."""

        def worker(i):
            source = random.Random(f"{self.seed} {i}")
            noise = torch.Generator().manual_seed(1000 * self.seed + i)
            for _ in range(puts):
                self.clock.sleep(source.random())
                j = choose_peer(self.peers[i], source)
                for k in range(self.layers):
                    if writes:
                        self.write(i, k, torch.randn(self.start[k].shape[1], generator=noise, dtype=torch.double))
                    self.transport.put(self.replicas[i], self.replicas[j], k, i, source)
                watch()

        self.clock.run([Program(i, partial(worker, i), index=i) for i in range(self.workers)])
        return self

    # -- what is conserved ---------------------------------------------------------------------------------------------
    def check_masses(self):
        ledger = self.exchange.ledger
        for k in range(self.layers):
            assert sum(self.masses(k)) + ledger.in_flight(k) + ledger.lost[k].sum() == self.workers
            assert ledger.in_flight(k) == sum(message.mass for _, message in self.on_its_way(k))
            assert min(self.masses(k)) > 0

    def check_weighted_sum(self):
        for k in range(self.layers):
            flying = sum(message.mass * message.flat for _, message in self.on_its_way(k))
            wanted = self.start[k].sum(0) + self.weighted_steps[k]
            torch.testing.assert_close(self.weighted_sum(k) + flying + self.gone[k], wanted, rtol=0, atol=1e-10)

    def check_sum(self):
        for k in range(self.layers):
            owed = sum(0.5 * m.flat for func, m in self.on_its_way(k) if func == self.transport._settle)
            wanted = self.start[k].sum(0) + self.steps[k].sum(0)
            torch.testing.assert_close(self.flat(k).sum(0) - owed, wanted, rtol=0, atol=1e-10)

    def spread(self):
        return max(float((self.flat(k) - self.flat(k)[0]).abs().max()) for k in range(self.layers))


# -- the two rules that keep something exactly -------------------------------------------------------------------------
@pytest.mark.parametrize("link", LINKS)
def test_push_sum_keeps_the_mass_and_the_mass_weighted_sum_also_on_the_way(link):
    gossip = Gossip("push-sum", link=LINKS[link])

    def watch():
        gossip.check_masses()
        gossip.check_weighted_sum()

    gossip.run(watch=watch)
    watch()
    lost = gossip.exchange.ledger.lost[0].sum()
    assert gossip.exchange.ledger.in_flight(0) == 0
    assert sum(gossip.transport.lost) > 0 if "loss" in link else lost == 0
    assert (lost > 0) == (link == "loss, counted")
    if lost == 0:
        assert sum(gossip.masses(0)) == gossip.workers


@pytest.mark.parametrize("link", LINKS)
def test_pair_average_keeps_the_sum_also_on_the_way(link):
    gossip = Gossip("average", link=LINKS[link])
    gossip.run(watch=gossip.check_sum)
    gossip.check_sum()
    assert sum(gossip.transport.merges) > 100
    assert gossip.exchange._open == [[False] * gossip.layers] * gossip.workers


GRAPHS = {**{name: name for name in TOPOLOGIES}, "a path": nx.path_graph(5), "a wheel": nx.wheel_graph(5)}


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    exchange=st.sampled_from(["average", "push-sum", "relaxed"]),
    graph=st.sampled_from(list(GRAPHS)),
    link=st.sampled_from(list(LINKS)),
    seed=st.integers(0, 10**6),
    puts=st.integers(1, 40),
)
def test_random_gossip_on_every_topology(exchange, graph, link, seed, puts):
    gossip = Gossip(exchange, 5, GRAPHS[graph], LINKS[link], seed).run(puts)
    if exchange == "average":
        gossip.check_sum()
    elif exchange == "push-sum":
        gossip.check_masses()
        gossip.check_weighted_sum()
    ledger = gossip.exchange.ledger
    for k in range(gossip.layers):  # whatever the rule, no mass appears from nowhere
        accounted = sum(gossip.masses(k)) + ledger.in_flight(k) + ledger.lost[k].sum() - ledger.relaxed[k].sum()
        assert accounted == gossip.workers
        assert all(mass / GRAIN == int(mass / GRAIN) for mass in gossip.masses(k))


# -- consensus ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("link", ["at once", "latency", "loss, returned"])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("exchange", ["average", "push-sum", "relaxed"])
def test_gossip_without_writes_reaches_consensus(exchange, graph, link):
    gossip = Gossip(exchange, 5, GRAPHS[graph], LINKS[link])
    before = gossip.spread()
    gossip.run(puts=300, writes=False)
    assert before > 1 and gossip.spread() < (1e-4 if exchange == "relaxed" else 1e-8)
    if exchange != "relaxed":  # and on the mean of where they started
        for k in range(gossip.layers):
            torch.testing.assert_close(gossip.flat(k)[0], gossip.start[k].mean(0), rtol=0, atol=1e-8)


# -- rules that send steps ---------------------------------------------------------------------------------------------
def test_increments_reach_one_peer_each():
    gossip = Gossip("increment", link=LINKS["loss, returned"]).run()
    for k in range(gossip.layers):
        unsent = sum(replica.layers[k].steps for replica in gossip.replicas)
        written = gossip.steps[k].sum(0)
        wanted = gossip.start[k].sum(0) + written + (written - unsent)
        torch.testing.assert_close(gossip.flat(k).sum(0), wanted, rtol=0, atol=1e-10)


def test_cumulative_increments_reach_everyone_once_also_when_messages_are_lost():
    gossip = Gossip("cumulative", link=LINKS["loss, counted"]).run()
    gossip.transport.link = None  # now everyone tells everyone
    for i in range(gossip.workers):
        for j in gossip.peers[i]:
            for k in range(gossip.layers):
                gossip.transport.put(gossip.replicas[i], gossip.replicas[j], k, i, random.Random(0))
    for k in range(gossip.layers):
        torch.testing.assert_close(gossip.flat(k) - gossip.start[k], gossip.steps[k].sum(0).expand(4, -1))


# -- a merge is a write ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("link", [None, Link(latency=0.1)])
@pytest.mark.parametrize("exchange, sides", [("average", 2), ("push-sum", 1), ("relaxed", 1), ("increment", 1)])
def test_a_merge_raises_the_version(exchange, sides, link):
    gossip = Gossip(exchange, 2, link=link)
    one, two = gossip.replicas
    gossip.clock.run([Program(0, lambda: gossip.transport.put(one, two, 1, 0, random.Random(0)))])
    assert [layer.version for layer in two.layers] == [0, 1]
    assert [layer.version for layer in one.layers] == [0, sides - 1]
    assert sum(gossip.transport.merges) == sides
    assert sum(gossip.transport.bytes) == sides * one.layers[1].flat.nbytes


def test_a_sender_that_only_sends_keeps_a_positive_mass():
    gossip = Gossip("push-sum", 2)
    for _ in range(100):
        gossip.transport.put(gossip.replicas[0], gossip.replicas[1], 0, 0, random.Random(0))
    gossip.check_masses()
    assert gossip.transport.skipped[0] > 0 and gossip.masses(0)[0] > 0


def test_one_open_exchange_a_layer():
    """With latency a second exchange of the same layer would correct twice: it is skipped until the answer is there."""
    gossip = Gossip("average", 2, link=Link(latency=1.0))
    one, two = gossip.replicas
    put = partial(gossip.transport.put, one, two, 0, 0, random.Random(0))

    def worker():
        put()
        put()
        gossip.clock.sleep(2.5)  # there and back
        put()

    gossip.clock.run([Program(0, worker)])
    assert gossip.transport.skipped[0] == 1 and sum(gossip.transport.merges) == 4
    gossip.check_sum()


# -- whom --------------------------------------------------------------------------------------------------------------
def test_peers_by_rate_follow_the_rates():
    source = random.Random(0)
    drawn = Counter(choose_peer([1, 2, 5], source, [1.0, 2.0, 7.0]) for _ in range(20_000))
    assert [drawn[peer] / 20_000 for peer in (1, 2, 5)] == pytest.approx([0.1, 0.2, 0.7], abs=0.015)
    drawn = Counter(choose_peer([1, 2, 5], source) for _ in range(20_000))
    assert [drawn[peer] / 20_000 for peer in (1, 2, 5)] == pytest.approx([1 / 3] * 3, abs=0.015)


@pytest.mark.parametrize("peer", ["uniform", "by-rate"])
def test_layup_puts_less_to_a_slow_worker_only_by_rate(peer, monkeypatch):
    got: Counter[int] = Counter()
    put = lu.Run.put
    monkeypatch.setattr(lu.Run, "put", lambda run, i, j, layer: (got.update({j: i == 0}), put(run, i, j, layer)))
    x = torch.randn(64, 3)
    task = lu.Task(lambda: nn.Linear(3, 1), x, x, lambda module, rows: module(rows).square().mean())
    lu.train(task, lu.LayUp(3, peer=peer, probability=1.0), samples=4 * 3000, batch_size=4, slow={2: 4.0},
             engine=lu.Virtual(), progress=False)  # fmt: skip
    share = got[2] / (got[1] + got[2])  # of worker 0's puts
    assert share == pytest.approx(0.5 if peer == "uniform" else 0.2, abs=0.05)


# -- real threads ------------------------------------------------------------------------------------------------------
def on_real_threads(exchange: str, link: Link | None) -> dict[str, float]:
    """Four threads write and put as fast as they can; what is left of the conservation laws."""
    gossip = Gossip(exchange, link=link, clock=RealClock())
    steps = [torch.zeros_like(start) for start in gossip.start]

    def worker(i):
        source, noise = random.Random(i), torch.Generator().manual_seed(i)
        for _ in range(800):
            gossip.clock.check()
            for k in range(gossip.layers):
                step = 0.01 * torch.randn(steps[k].shape[1], generator=noise, dtype=torch.double)
                gossip.replicas[i].layers[k].flat.add_(step)
                steps[k][i] += step
                j = choose_peer(gossip.peers[i], source)
                gossip.transport.put(gossip.replicas[i], gossip.replicas[j], k, i, source)

    gossip.clock.run([Program(i, partial(worker, i), index=i) for i in range(gossip.workers)])
    ledger, found = gossip.exchange.ledger, {}
    found["mass"] = sum(gossip.masses(0)) + ledger.lost[0].sum()
    found["in flight"] = ledger.in_flight(0)
    error = gossip.flat(0).sum(0) - gossip.start[0].sum(0) - steps[0].sum(0)
    found["error of the sum"] = float(error.norm() / gossip.flat(0).norm())
    found["lost"], found["merges"] = sum(gossip.transport.lost), sum(gossip.transport.merges)
    found["versions"] = sum(layer.version for replica in gossip.replicas for layer in replica.layers)
    return found


@pytest.fixture(scope="module")
def threads():
    """In a subprocess, at a switch interval that makes threads meet in every line."""
    script = """
import json, sys
sys.setswitchinterval(1e-5)
import test_conservation as t
from minilayup.transport import Link
slow = Link(latency=1e-4, loss=0.2)
print(json.dumps([t.on_real_threads(rule, link) for rule in ("push-sum", "average") for link in (None, slow)]))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_masses_and_counts_are_exact_on_real_threads(threads):
    """How many messages are sent depends on how the threads meet, except where each put is an exchange on the spot."""
    for found in threads:
        assert found["mass"] == 4 and found["in flight"] == 0
        assert found["versions"] == found["merges"] > 0
    push_sum, push_sum_over_link, average, _ = threads
    assert push_sum["lost"] == average["lost"] == 0 < push_sum_over_link["lost"]
    assert average["merges"] == 2 * 4 * 800 * 2  # both sides; workers, turns, layers


def test_the_sum_survives_racing_writes_but_for_what_two_adds_at_once_lose(threads, record_property):
    for name, found in zip(("at once", "latency"), threads[2:]):
        record_property(f"pair average, {name}: relative error of the sum", found["error of the sum"])
        assert found["error of the sum"] < 0.2


def test_the_rules_say_what_they_conserve():
    assert "sum" in Average.conserves and "mass" in PushSum.conserves
    assert all(rule.conserves for rule in EXCHANGES.values())
