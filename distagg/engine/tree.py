"""The fixed merge tree: the same sums, to the last bit, for any distribution of chunks over workers.

Leaves are chunk results in dataset order. Node (level, place) covers 2**level leaves from place * 2**level on. A worker
merges every complete node inside its span of leaves; the driver merges the rest. A node without a right neighbour is
promoted, so the shape depends only on the number of leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Node(NamedTuple):
    level: int
    place: int  # among the nodes of its level
    value: object


def push(stack: list[Node], node: Node, reduce: Callable[[T, T], T]) -> None:
    """Add the next node in order and merge the pairs that it completes."""
    while stack and stack[-1].level == node.level and node.place % 2 == 1 and stack[-1].place == node.place - 1:
        left = stack.pop()
        node = Node(node.level + 1, node.place // 2, reduce(left.value, node.value))  # type: ignore[arg-type]
    stack.append(node)


def merge_span(first: int, values: Iterable[T], reduce: Callable[[T, T], T]) -> list[Node]:
    """The complete nodes of leaves ``first``, ``first + 1``, ... in order."""
    stack: list[Node] = []
    for offset, value in enumerate(values):
        push(stack, Node(0, first + offset, value), reduce)
    return stack


def merge_all(spans: Iterable[list[Node]], reduce: Callable[[T, T], T]) -> T | None:
    """The root, from the nodes of consecutive spans that cover all leaves; None without leaves."""
    stack: list[Node] = []
    for span in spans:
        for node in span:
            push(stack, node, reduce)
    if not stack:
        return None
    value = stack.pop().value
    while stack:
        value = reduce(stack.pop().value, value)  # type: ignore[arg-type]
    return value  # type: ignore[return-value]
