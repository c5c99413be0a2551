"""The fixed merge tree: the same sums, to the last bit, however the chunks were shared out.

Leaves are chunk results in dataset order. Node (level, place) covers leaves place * 2**level and on. Whoever
holds a span of leaves merges every complete node inside it; the driver merges the rest. A node without a right
neighbour is promoted, so the shape depends on the number of leaves alone.
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
    """Add the next node in order and merge whatever pairs it completes."""
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
    """The root, from the nodes of consecutive spans that cover all leaves; None when there are none."""
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
