"""PrefLib out: read back by our own reader; checked once with preflibtools 2.0.33 (OrdinalInstance)."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from strategies import on_chunks

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.dataset.preflib import orders_of, write_preflib
from distagg.engine.importing import read_dataset
from distagg.errors import InputError, UsageError

VOTES = {
    "query": ["a", "a", "a", "a", "a", "b", "b", "b", "b"],
    "expert": ["1", "1", "2", "2", "3", "1", "1", "2", "2"],
    "item": ["x", "y", "x", "y", "z", "x", "y", "y", "x"],
    "rank": [1, 5, 1, 2, 1, 1, 2, 4, 9],
}


def orders(dataset):
    """Orders of every query by the names of items, with counts."""
    found = {}
    for chunk in dataset.chunks():
        for q in range(chunk.n_queries):
            names = chunk.item_ids[chunk.item_offsets[q] : chunk.item_offsets[q + 1]].to_pylist()
            named = (tuple(frozenset(names[i] for i in group) for group in order) for order in orders_of(chunk, q))
            found.setdefault(str(chunk.query_ids[q]), Counter()).update(named)
    return found


def written(dataset, folder):
    write_preflib(dataset, folder)
    return sorted(folder.glob("*.[st]o[ci]"))


def test_lines_are_preflibs(tmp_path):
    files = written(Dataset.from_arrow(pa.table(VOTES)), tmp_path / "out")
    assert [file.name for file in files] == ["a.soi", "b.soc"]
    text = files[0].read_text()
    assert "# DATA TYPE: soi\n" in text
    assert "# NUMBER ALTERNATIVES: 3\n# NUMBER VOTERS: 3\n# NUMBER UNIQUE ORDERS: 2\n# ALTERNATIVE NAME 1: x\n" in text
    assert text.endswith("# ALTERNATIVE NAME 3: z\n2: 1,2\n1: 3\n")


def test_suffixes_say_what_orders_are(tmp_path):
    table = pa.table({**VOTES, "rank": [1, 1, 1, 2, 1, 1, 1, 4, 9]})
    files = written(Dataset.from_arrow(table), tmp_path / "out")
    assert [file.name for file in files] == ["a.toi", "b.toc"]
    assert "\n1: {1,2}\n" in files[1].read_text()


@on_chunks(20)
def test_what_is_written_is_read_again(drawn, tmp_path_factory):
    made, _ = drawn
    rows = [
        {"query": f"q {n}", "expert": f"e{e}", "item": f"item, {i}", "rank": rank}
        for n, query in enumerate(made) for e, ranks in query.lists.items() for i, rank in ranks.items()
    ]  # fmt: skip
    if not rows:
        return
    dataset = Dataset.from_arrow(pa.Table.from_pylist(rows))
    files = written(dataset, tmp_path_factory.mktemp("preflib") / "out")
    assert orders(read_dataset([str(file) for file in files])) == orders(dataset)


def test_a_split_query_is_one_file(tmp_path, crowd):
    """Ratings by many users: one query, whose lists lie in several chunks."""
    dataset = Dataset.open(crowd)
    assert dataset.manifest.partition == "expert"
    (file,) = written(dataset, tmp_path / "out")
    assert file.suffix == ".toi"
    (again,) = orders(read_dataset([str(file)])).values()
    assert again == next(iter(orders(dataset).values()))
    assert again.total() == dataset.manifest.experts


def test_names_that_the_format_cannot_hold_are_refused(tmp_path):
    table = pa.table({"expert": ["1", "1"], "item": ["x", "y "], "rank": [1, 2]})
    with pytest.raises(InputError, match=r"item 'y '.*without blanks"):
        write_preflib(Dataset.from_arrow(table), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    pairs = Dataset.from_arrow(pa.table({"winner": ["x"], "loser": ["y"]}))
    with pytest.raises(UsageError, match="the data are pairs"):
        write_preflib(pairs, tmp_path / "out")


def test_files_of_odd_queries_have_safe_names(tmp_path):
    table = pa.table({"query": ["a/b"], "expert": ["1"], "item": ["x"], "rank": [1]})
    (file,) = written(Dataset.from_arrow(table), tmp_path / "out")
    assert file.name == "a%2Fb.soc"


def test_the_command_exports_lists_and_rankings(tmp_path, capsys):
    lists = tmp_path / "lists.csv"
    rows = zip(*VOTES.values(), strict=True)
    lists.write_text("\n".join(",".join(map(str, row)) for row in [VOTES.keys(), *rows]) + "\n")
    assert main(["export", str(lists), "-o", str(tmp_path / "votes")]) == 0
    assert "wrote 2 PrefLib files" in capsys.readouterr().err
    assert main(["rank", "copeland", str(lists), "-o", str(tmp_path / "ranked")]) == 0
    assert main(["export", str(tmp_path / "ranked"), "-o", str(tmp_path / "winners")]) == 0
    assert {file.name for file in Path(tmp_path / "winners").glob("*.*")} == {"a.soc", "b.toc"}
    assert (tmp_path / "winners" / "b.toc").read_text().endswith("\n1: {1,2}\n")
