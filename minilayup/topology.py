"""Who talks to whom: the graph of the workers, and the draw of a peer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from .errors import ArgumentError, choose

if TYPE_CHECKING:
    import networkx

TOPOLOGIES = ("complete", "ring", "exponential", "star")


def peers_of(graph: str | networkx.Graph, workers: int) -> list[list[int]]:
    """The peers each worker may put to.

    Args:
        graph: "complete"; "ring" (both neighbours); "exponential" (directed, to i + 1, 2, 4, … as in SGP, Assran et al.
            2019, arXiv 1811.10792); "star" (worker 0 in the middle); or a networkx graph with the nodes 0 … workers-1.

    Raises: `ArgumentError` for an unknown name, other nodes, or a graph in which some worker never hears of another.
    """
    import networkx as nx

    if isinstance(graph, str):
        choose("topology", graph, TOPOLOGIES)
        if graph == "exponential":
            hops = [2**k for k in range(max(1, (workers - 1).bit_length()))]
            graph = nx.DiGraph((i, (i + hop) % workers) for i in range(workers) for hop in hops if hop % workers)
            graph.add_nodes_from(range(workers))
        elif graph == "star":
            graph = nx.star_graph(workers - 1)
        else:
            graph = nx.complete_graph(workers) if graph == "complete" or workers < 3 else nx.cycle_graph(workers)
    if not isinstance(graph, nx.Graph):
        raise ArgumentError(f"topology must be one of {', '.join(TOPOLOGIES)} or a networkx graph, not {graph!r}")
    if set(graph) != set(range(workers)):
        raise ArgumentError(
            f"topology has the nodes {sorted(graph, key=str)}; {workers} workers need 0 to {workers - 1}"
        )
    if not (nx.is_strongly_connected(graph) if graph.is_directed() else nx.is_connected(graph)):
        raise ArgumentError("topology is disconnected: some worker would never hear of another")
    return [sorted(j for j in graph[i] if j != i) for i in range(workers)]


def choose_peer(peers: list[int], source: random.Random, rates: list[float] | None = None) -> int:
    """Draw a peer: each as likely as the other, or in proportion to ``rates`` (batches written)."""
    return source.choice(peers) if rates is None else source.choices(peers, rates)[0]
