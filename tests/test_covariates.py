"""Covariates: which columns they mean, and how they are seen from the winner."""

import numpy as np
import pyarrow as pa
import pytest

from distagg.covariates import Covariate, Levels, Term, find, find_all, terms_of
from distagg.errors import UsageError

HEADER = [
    "model_a",
    "model_b",
    "winner",
    "turns",
    "length_a",
    "length_b",
    "a_bold",
    "b_bold",
    "words_left",
    "words_right",
]


def found(text, header=HEADER, battles=True):
    return find(Term.of(text), header, battles=battles, where="battles.csv")


@pytest.mark.parametrize(
    ("text", "name", "source"),
    [
        ("turns", "turns", ("turns",)),
        ("length", "length", ("length_a", "length_b")),
        ("length_a-length_b", "length", ("length_a", "length_b")),
        ("length_a - length_b", "length", ("length_a", "length_b")),
        ("bold", "bold", ("a_bold", "b_bold")),
        ("words", "words", ("words_left", "words_right")),
        ("relative(length)", "length", ("length_a", "length_b")),
        ("turns-length_a", "turns-length_a", ("turns", "length_a")),
        ("position", "position", ()),
    ],
)
def test_columns_of_terms(text, name, source):
    assert (found(text).name, found(text).source) == (name, source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lenght", "lenght"),
        ("length_a", "is a column of one side; write length_a-length_b"),
        ("length_b", "is a column of one side; write length_a-length_b"),
        ("length_b-length_a", "sides reversed; write length_a-length_b"),
        ("winner", "has another meaning"),
    ],
)
def test_terms_that_mean_nothing(text, message):
    with pytest.raises(UsageError, match=message):
        found(text)


def test_position_needs_battles():
    with pytest.raises(UsageError, match="position"):
        found("position", ["winner", "loser"], battles=False)


def test_a_name_of_two_pairs_of_columns_is_refused():
    with pytest.raises(UsageError, match="write one of them"):
        found("x", ["x_a", "x_b", "a_x", "b_x"])


def test_each_covariate_once():
    terms = terms_of("length,relative(length),turns")
    assert [each.name for each in find_all(terms, HEADER, battles=True, where="t")] == ["length", "turns"]
    for text in ("turns,turns", "turns,category(turns)"):
        with pytest.raises(UsageError, match="once"):
            find_all(terms_of(text), HEADER, battles=True, where="t")
    with pytest.raises(UsageError, match="form"):
        terms_of("cube(turns)")


def test_swapping_sides_and_result_changes_nothing_but_position():
    """A battle written from the other side is the same battle: winner's and loser's values are the same."""
    covariates = [
        Covariate("length", ("length_a", "length_b")),
        Covariate("position", ()),
        Covariate("turns", ("turns",)),
    ]
    a, b, turns = pa.array([3.0, 4.0]), pa.array([5.0, 0.0]), pa.array([2.0, 0.0])
    rows = {"length_a": a, "length_b": b, "turns": turns}
    swapped = {"length_a": b, "length_b": a, "turns": pa.array([-2.0, 0.0])}
    a_won = np.array([True, False])
    one, other = (Levels(covariates).seen_from_winner(*each) for each in ((rows, a_won), (swapped, ~a_won)))
    assert one["length_winner"] == other["length_winner"] == pa.array([3.0, 0.0])
    assert one["length_loser"] == other["length_loser"] == pa.array([5.0, 4.0])
    assert one["turns"] == other["turns"] == pa.array([2.0, 0.0])
    assert one["position"] == pa.array([1.0, -1.0])
    assert other["position"] == pa.array([-1.0, 1.0])
    assert not np.signbit(one["turns"].to_numpy()).any()


def test_categories_get_levels_as_they_come():
    covariates = [Covariate("lang", ("lang",), category=True), Covariate("kind", ("kind_a", "kind_b"), category=True)]
    levels = Levels(covariates)
    rows = {"lang": pa.array(["de", "en"]), "kind_a": pa.array(["x", "y"]), "kind_b": pa.array(["z", "x"])}
    first = levels.seen_from_winner(rows, np.array([True, False]))
    assert first["lang"].to_pylist() == [1.0, -2.0]
    assert (first["kind_winner"].to_pylist(), first["kind_loser"].to_pylist()) == ([0.0, 0.0], [1.0, 2.0])
    again = levels.seen_from_winner({**rows, "lang": pa.array(["fr", "de"])}, np.array([True, True]))
    assert again["lang"].to_pylist() == [3.0, 1.0]
    assert [each.levels for each in levels.covariates] == [("de", "en", "fr"), ("x", "z", "y")]
