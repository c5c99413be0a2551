"""The fixed tree gives the same bits however leaves are shared out."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distagg.engine.runner import merge_all, merge_span


def shape(values: list[str], cuts: list[int]) -> str | None:
    """How leaves get merged, as brackets, when spans end at the cuts."""
    edges = sorted({0, len(values), *(cut % (len(values) + 1) for cut in cuts)})

    def reduce(a: str, b: str) -> str:
        return f"({a}{b})"

    spans = [merge_span(a, values[a:b], reduce) for a, b in itertools.pairwise(edges)]
    return merge_all(spans, reduce)


@given(st.integers(1, 40), st.lists(st.integers(0, 100), max_size=6))
def test_any_sharing_merges_alike(count, cuts):
    leaves = [chr(97 + n % 26) for n in range(count)]
    assert shape(leaves, cuts) == shape(leaves, [])


def test_the_shape_is_a_binary_tree_with_promotion():
    assert shape(list("abcdefg"), [2, 3]) == "(((ab)(cd))((ef)g))"
    assert shape(list("abcde"), []) == "(((ab)(cd))e)"
    assert shape(["a"], []) == "a"


def test_no_leaves_no_result():
    assert merge_all([], lambda a, b: a) is None


def test_float_sums_are_the_same_bits():
    values = list(np.random.default_rng(0).normal(size=37) * 10.0 ** np.arange(37))
    one = merge_all([merge_span(0, values, np.add)], np.add)
    two = merge_all([merge_span(0, values[:13], np.add), merge_span(13, values[13:], np.add)], np.add)
    assert one == two
