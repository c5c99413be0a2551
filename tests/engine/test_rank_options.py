"""What a ranking shows when asked: support, least support, titles, the bootstrap over experts."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from strategies import Query, build_chunk, on_chunks

from distagg import Dataset, Shown, rank
from distagg.cli.main import main
from distagg.dataset.chunk import Chunk
from distagg.engine import import_dataset
from distagg.engine.rank_options import count_support
from distagg.engine.read_rankings import read_rankings
from distagg.errors import UsageError
from distagg.models import model_named

RATINGS = [("a", "x", 5), ("a", "y", 3), ("a", "z", 3), ("b", "y", 4), ("b", "x", 2), ("c", "z", 1)]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    (folder / "r.tsv").write_text("".join(f"{u}\t{i}\t{r}\n" for u, i, r in RATINGS))
    (folder / "i.csv").write_text("id,title\nx,Ex\ny,Why\nz,Zed\nw,Nobody\n")
    (folder / "u.csv").write_text("id,age\na,20\nb,30\nc,40\n")
    import_dataset("ratings", [folder / "r.tsv"], folder / "d", items=folder / "i.csv", users=folder / "u.csv")
    return folder / "d"


@on_chunks(60)
def test_support_is_what_counting_pairs_gives(drawn: tuple[list[Query], Chunk]) -> None:
    made, chunk = drawn
    found = count_support(chunk, "lists")
    for q, query in enumerate(made):
        wanted = np.zeros((3, query.size), dtype=int)
        for ranks in query.lists.values():
            wanted[0, list(ranks)] += 1
            for i, j in combinations(ranks, 2):
                if ranks[i] != ranks[j]:
                    better, worse = (i, j) if ranks[i] < ranks[j] else (j, i)
                    wanted[1, better] += 1
                    wanted[2, worse] += 1
        span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
        assert [found[name][span].tolist() for name in ("experts", "won", "lost")] == wanted.tolist()


def test_support_of_pairs_is_comparisons_with_their_weights() -> None:
    pairs = [(0, 1, 2.0, False), (0, 1, 1.0, False), (2, 1, 0.5, True)]
    found = count_support(build_chunk([Query(3, pairs=pairs)]), "pairs")
    assert found["comparisons"].tolist() == [3.0, 3.5, 0.5]
    assert found["won"].tolist() == [3.0, 0.0, 0.0]
    assert found["lost"].tolist() == [0.0, 3.0, 0.0]


BATTLES = pa.table(
    {
        "query": ["p"] * 4 + ["q"] * 2,
        "winner": ["a", "a", "b", "a", "c", "d"],
        "loser": ["b", "b", "a", "c", "d", "c"],
    }
)


def test_least_support_of_pairs_counts_comparisons(caplog: pytest.LogCaptureFixture) -> None:
    table = rank("bradley_terry", Dataset.from_arrow(BATTLES), shown=Shown(support=True, least=3))
    rows = [(row["query"], row["item"], row["comparisons"], row["won"], row["lost"]) for row in table.to_pylist()]
    assert rows == [("p", "a", 4.0, 3.0, 1.0), ("p", "b", 3.0, 1.0, 2.0)]
    assert "left out 3 of 5 items with fewer than 3 comparisons; 1 of 2 queries have none left" in caplog.text


def test_a_ranking_without_items_is_refused(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--min-support 50: no item has that many comparisons, the maximum is 4"):
        rank("bradley_terry", Dataset.from_arrow(BATTLES), shown=Shown(least=50))
    assert main(["rank", "borda", str(films), "--min-support", "50", "-o", str(tmp_path / "r.csv")]) == 2
    assert "no item has that many experts, the maximum is 2" in capsys.readouterr().err
    assert not (tmp_path / "r.csv").exists()


def test_columns_on_request(films: Path, tmp_path: Path) -> None:
    command = ["rank", "borda", str(films), "--support", "--titles", "--min-support", "2", "--bootstrap", "5"]
    assert main([*command, "-o", str(tmp_path / "r")]) == 0
    table = read_rankings(tmp_path / "r")
    names = ["query", "item", "rank", "score", "experts", "won", "lost", "deviation", "rank_low", "rank_high"]
    names += ["draws", "title"]
    assert table.column_names == names
    rows = table.to_pylist()
    assert [(r["rank"], r["title"], r["experts"], r["won"], r["lost"]) for r in rows] == [
        (1, "Ex", 2, 2, 1),
        (2, "Why", 2, 1, 1),
        (3, "Zed", 2, 0, 1),
    ]
    assert all(row["rank_low"] <= row["rank_high"] for row in rows)
    assert rank("borda", Dataset.open(films)).column_names == names[:4]


def test_support_is_the_audiences(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "r.csv"
    assert main(["rank", "mpm", str(films), "--support", "--where", "age < 35 and age > 25", "-o", str(output)]) == 0
    assert "1 of 3 experts" in capsys.readouterr().err
    lines = [line.split(",") for line in output.read_text().splitlines()]
    assert lines[0][4:] == ["experts", "won", "lost"]
    assert {line[1]: line[4:] for line in lines[1:]} == {
        "y": ["1", "1", "0"],
        "x": ["1", "0", "1"],
        "z": ["0", "0", "0"],
        "w": ["0", "0", "0"],
    }


def test_what_cannot_be_shown_is_said(films: Path) -> None:
    table = pa.table({"expert": ["a"], "item": ["x"], "rank": [1]})
    with pytest.raises(UsageError, match="no titles"):
        rank("borda", Dataset.from_arrow(table), shown=Shown(titles=True))
    for wrong in ({"least": -1}, {"resamples": 1}, {"resamples": -3}):
        with pytest.raises(UsageError, match="expected"):
            Shown(**wrong)


def test_many_queries_have_their_own_support_and_draws(planted: Path) -> None:
    """Columns stand beside their items whatever the order of the ranking."""
    dataset = Dataset.open(planted)
    table = rank("borda", dataset, shown=Shown(support=True, resamples=3, seed=5))
    (chunk,) = dataset.chunks()
    known = dict(
        zip(
            zip(np.array(chunk.query_ids)[chunk.item_query()], chunk.item_ids.to_pylist(), strict=True),
            count_support(chunk, "lists")["experts"].tolist(),
            strict=True,
        )
    )
    rows = table.to_pylist()
    assert all(known[row["query"], row["item"]] == row["experts"] for row in rows)
    model, again = model_named("borda"), []
    for number in range(3):
        (drawn,) = dataset.select(draw=(5, number)).chunks()
        again.append(model.score(drawn, {}))
        again[-1][np.bincount(drawn.entry_row(), minlength=drawn.n_items) == 0] = np.nan
    places = {key: at for at, key in enumerate(known)}
    held = np.isfinite(again).sum(axis=0)
    for row in rows:
        at = places[row["query"], row["item"]]
        assert row["draws"] == held[at]
        seen = [score[at] for score in again if np.isfinite(score[at])]
        assert row["deviation"] == (np.std(seen, ddof=1) if len(seen) > 1 else np.inf)


def test_draws_without_an_item_say_nothing_of_it() -> None:
    """Only one of twenty experts lists z and w, last: in a third of the draws they are not there."""
    experts = [f"e{n}" for n in range(20)]
    rows = [(e, item, place) for e in experts for place, item in enumerate("xy", 1)] + [("e7", "z", 3), ("e7", "w", 4)]
    who, what, place = zip(*rows, strict=True)
    data = Dataset.from_arrow(pa.table({"expert": who, "item": what, "rank": place}))
    table = rank("bradley_terry", data, shown=Shown(resamples=40), unlisted="ignore")
    found = {row["item"]: row for row in table.to_pylist()}
    times = sum(bool((chunk.entry_item == 2).any()) for n in range(40) for chunk in data.select(draw=(0, n)).chunks())
    assert found["x"]["draws"] == 40
    assert 15 < found["z"]["draws"] == found["w"]["draws"] == times < 40
    assert found["w"]["rank_low"] == 4  # without its expert it would stand at 0, between x and y


def test_a_single_expert_cannot_be_drawn_again() -> None:
    with pytest.raises(UsageError, match="draws experts, but the dataset has fewer than two"):
        rank("bradley_terry", Dataset.from_arrow(BATTLES), shown=Shown(resamples=5))


def test_the_bootstraps_interval_is_as_wide_as_drawing_new_experts(tmp_path: Path) -> None:
    """Many samples of one population: their spread is what the bootstrap sees in one of them."""
    draw = np.random.default_rng(0)

    def sample(n: int) -> Dataset:
        seen = np.arange(5) + 2.0 * draw.standard_normal((n, 5))
        who, what = np.repeat(np.arange(n), 5).astype(str), np.tile(list("abcde"), n)
        return Dataset.from_arrow(pa.table({"expert": who, "item": what, "score": -seen.ravel()}))

    scores = []
    for _ in range(200):
        table = rank("borda", sample(60))
        scores.append(dict(zip(table["item"].to_pylist(), table["score"].to_pylist(), strict=True)))
    spread = {item: np.std([score[item] for score in scores], ddof=1) for item in "abcde"}
    seen = [rank("borda", sample(60), shown=Shown(resamples=100, seed=n)).to_pylist() for n in range(3)]
    for item in "abcde":
        found = np.mean([row["deviation"] for rows in seen for row in rows if row["item"] == item])
        assert 0.75 < found / spread[item] < 1.3
