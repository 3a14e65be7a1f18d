"""The smallest case drawn as a picture, with the story in a few sentences.

A module per contract family has a function per contract; a contract without one gets
the values beside each other. A picture shows the request in which the divergence
stands and says in words what must happen and what production did, so that a person
who has never seen the code can follow.
"""

from __future__ import annotations

from collections.abc import Callable

from reports.html.pictures import boundary, chain, order, plain, pool, sampling, tree
from reports.html.pictures.scene import Picture, Scene

PICTURES: dict[str, Callable[[Scene], Picture | None]] = {
    "commit.checkpoint_steps": boundary.checkpoint,
    "commit.call_order": order.call_order,
    "commit.track_slots": boundary.filed,
    "commit.state_scatter": pool.state_scatter,
    "verify.greedy_chain": chain.greedy_chain,
    "verify.greedy_tree": tree.greedy_tree,
    "verify.tree_sampling": sampling.tree_sampling,
    "verify.chain_rejection": sampling.chain_rejection,
}


def draw(scene: Scene) -> Picture | None:
    """The picture of ``scene``; ``None`` when there is nothing that a picture says
    better than the table of the case."""
    special = PICTURES.get(scene.contract.name)
    return (special and special(scene)) or plain.values(scene)
