"""Expanded datasets: what stands where, against dense matrices; nothing half-written."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import build_chunk, chunks

from distagg.cli.main import main
from distagg.dataset import Dataset, expanded, write_dataset
from distagg.dataset.expand import expand_chunk, expand_dataset
from distagg.engine.compare import evaluate_model
from distagg.engine.rank import rank_to
from distagg.errors import UsageError
from distagg.models import model_named
from distagg.sources.ratings import RatingsSource


def dense(chunk, query: int) -> np.ndarray:
    """Ranks as the papers' matrix, 0 where there is none."""
    return np.asarray(chunk.rank_matrix(query).todense())


@settings(max_examples=40)
@given(drawn=chunks(), experts=st.integers(1, 3), items=st.integers(1, 3))
def test_matrices_are_repeated(drawn, experts, items):
    _, chunk = drawn
    made = expand_chunk(chunk, experts=experts, items=items)
    assert made.n_experts == chunk.n_experts * experts
    for q in range(chunk.n_queries):
        assert np.array_equal(dense(made, q), np.tile(dense(chunk, q), (items, experts)))
        own, more = (c.labels[c.item_offsets[q] : c.item_offsets[q + 1]] for c in (chunk, made))
        assert np.array_equal(more, np.tile(own, items))
    for a in range(made.n_lists):  # as every list: by rank, then item
        span = slice(made.entry_offsets[a], made.entry_offsets[a + 1])
        keys = list(zip(made.entry_rank[span], made.entry_item[span], strict=True))
        assert keys == sorted(keys)


@pytest.mark.parametrize(("experts", "items"), [(3, 1), (1, 4), (2, 3)])
def test_on_disk_as_in_memory(planted: Path, tmp_path: Path, experts: int, items: int):
    dataset = Dataset.open(planted)
    target, seen = tmp_path / "more", []
    times = {"experts": experts, "items": items}
    manifest = expand_dataset(dataset, target, **times, block_entries=2_000, progress=seen.append)
    made = Dataset.open(target)
    assert made.manifest == manifest
    assert sum(seen) == manifest.entries == dataset.manifest.entries * experts * items
    assert len(manifest.blocks) > 3
    assert manifest.queries == dataset.manifest.queries
    assert manifest.labels == {label: n * items for label, n in dataset.manifest.labels.items()}
    assert manifest.ties == (manifest.entries if items > 1 else dataset.manifest.ties * experts)
    assert manifest.parts == dataset.manifest.parts
    names = list(made.experts)
    assert names[: len(dataset.experts)] == list(dataset.experts)
    assert len(set(names)) == len(names) == len(dataset.experts) * experts
    (whole,) = dataset.plan()
    expected = expand_chunk(whole.load(), **times)
    (found,) = made.plan(1 << 30)
    found = found.load()
    for name in ("item_offsets", "labels", "list_offsets", "list_expert", "entry_offsets", "entry_item", "entry_rank"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert found.item_ids.equals(expected.item_ids)
    assert len(set(found.item_ids.to_pylist()[: found.item_offsets[1]])) == found.item_offsets[1]


def test_copies_of_experts_change_no_ranking(planted: Path, tmp_path: Path):
    expand_dataset(Dataset.open(planted), tmp_path / "more", experts=4)
    for name in ("rrf", "borda", "mpm"):
        values = [
            evaluate_model(model_named(name), {}, Dataset.open(d), ["ndcg@5"])[1] for d in (planted, tmp_path / "more")
        ]
        assert values[1] == pytest.approx(values[0], abs=1e-12)


def test_users_are_copied_where_they_are_the_partition(tmp_path: Path):
    draw = np.random.default_rng(3)
    rows = [f"{u}\t{i}\t{draw.integers(1, 6)}\t0" for u in range(30) for i in draw.permutation(20)[:6]]
    (tmp_path / "u.data").write_text("\n".join(rows) + "\n")
    write_dataset(RatingsSource([tmp_path / "u.data"]), tmp_path / "ratings")
    dataset = Dataset.open(tmp_path / "ratings")
    manifest = expand_dataset(dataset, tmp_path / "more", experts=5, block_entries=100)
    assert (manifest.partition, manifest.experts, manifest.entries) == ("expert", 150, 900)
    assert manifest.items == dataset.manifest.items
    assert len(manifest.blocks) > 4
    made = Dataset.open(tmp_path / "more")
    lists = [
        (e, tuple(c.entry_item[c.entry_offsets[n] : c.entry_offsets[n + 1]]))
        for c in (ref.load() for ref in made.plan(100))
        for n, e in enumerate(c.list_expert)
    ]
    (own,) = (ref.load() for ref in dataset.plan())
    for n, e in enumerate(own.list_expert):
        mine = tuple(own.entry_item[own.entry_offsets[n] : own.entry_offsets[n + 1]])
        assert [items for expert, items in lists if expert % 30 == e] == [mine] * 5


def test_what_cannot_be_expanded_is_refused(planted: Path, tmp_path: Path, capsys):
    pairs = Dataset.from_arrow(pa.table({"winner": ["a"], "loser": ["b"]}))
    with pytest.raises(UsageError, match="holds pairs"):
        expand_dataset(pairs, tmp_path / "more", experts=2)
    with pytest.raises(UsageError, match="--items: found 0"):
        expand_dataset(Dataset.open(planted), tmp_path / "more", items=0)
    with pytest.raises(UsageError, match="experts, expected less than"):
        expand_dataset(Dataset.open(planted), tmp_path / "more", experts=1 << 30)
    assert main(["expand", str(planted), "--experts", "-1", "-o", str(tmp_path / "more")]) == 2
    assert not (tmp_path / "more").exists()
    assert main(["expand", str(planted), "--experts", "2", "-o", str(planted)]) == 2
    capsys.readouterr()
    assert main(["expand", str(planted), "--experts", "2", "-o", str(tmp_path / "more")]) == 0
    assert "experts" in capsys.readouterr().out


def test_an_empty_chunk_stays_empty():
    assert expand_chunk(build_chunk([], n_experts=2), experts=3, items=2).n_items == 0


@pytest.mark.parametrize(("source", "experts", "items"), [("planted", 3, 1), ("planted", 2, 3), ("crowd", 3, 2)])
def test_a_view_is_the_copy(source: str, experts: int, items: int, request, tmp_path: Path):
    """Blocks, plans and arrays of every chunk, with and without ids."""
    base = Dataset.open(request.getfixturevalue(source))
    times = {"experts": experts, "items": items}
    expand_dataset(base, tmp_path / "copy", **times, block_entries=2_000)
    copy, view = Dataset.open(tmp_path / "copy"), expanded(base, **times, block_entries=2_000)
    assert len(view.manifest.blocks) > 3
    assert replace(view.manifest, files=()) == replace(copy.manifest, files=())
    assert view.experts == copy.experts
    plans = view.plan(5_000), copy.plan(5_000)
    assert len(plans[0]) == len(plans[1]) > 1
    for ids in (True, False):
        for mine, theirs in zip(*plans, strict=True):
            assert mine.entries == theirs.entries
            same_chunk(mine.load(ids=ids), theirs.load(ids=ids))


def same_chunk(one, other) -> None:
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, field.name
            assert np.array_equal(a, b), field.name
        else:
            assert a == b, field.name


@pytest.mark.parametrize("name", ["rrf", "borda"])
def test_models_do_not_tell_a_view_from_the_copy(name: str, planted: Path, tmp_path: Path):
    base = Dataset.open(planted)
    expand_dataset(base, tmp_path / "copy", experts=2, items=2)
    for number, dataset in enumerate((Dataset.open(tmp_path / "copy"), expanded(base, experts=2, items=2))):
        rank_to(tmp_path / str(number), model_named(name), {}, dataset)
    assert files_of(tmp_path / "0") == files_of(tmp_path / "1")


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_view_holds_a_chunk_at_a_time(planted: Path):
    """Whatever the expansion, no chunk is larger than the budget and its largest block."""
    base = Dataset.open(planted)
    view = expanded(base, experts=200, block_entries=20_000)
    largest = max(block.entries + block.items for block in view.manifest.blocks)
    sizes = [ref.load(ids=False).n_entries for ref in view.plan(50_000)]
    assert sum(sizes) == view.manifest.entries == 200 * base.manifest.entries
    assert max(sizes) <= max(50_000, largest)
    assert len(sizes) > 20


def test_what_a_view_refuses(planted: Path):
    base = Dataset.open(planted)
    with pytest.raises(UsageError, match="at least 1"):
        expanded(base, experts=0)
    with pytest.raises(UsageError, match="expand the whole dataset first"):
        expanded(base.select(without=base.experts[:1]), experts=2)
    with pytest.raises(UsageError, match="expand the whole dataset first"):
        expanded(expanded(base, experts=2), items=2)
    with pytest.raises(UsageError, match="on disk"):
        expanded(base, experts=2).select(audience="expert = 'x'")


def test_the_commands_expand_while_reading(planted: Path, tmp_path: Path, capsys):
    view, copy = str(tmp_path / "view"), str(tmp_path / "copy")
    more = ["--expand-experts", "2", "--expand-items", "2"]
    assert main(["expand", str(planted), "-o", f"{copy}.data", "--experts", "2", "--items", "2"]) == 0
    assert main(["rank", "rrf", str(planted), "-o", view, *more]) == 0
    assert main(["rank", "rrf", f"{copy}.data", "-o", copy]) == 0
    assert files_of(Path(view)) == files_of(Path(copy))
    capsys.readouterr()
    shown = []
    for command in (["evaluate", view, str(planted), *more], ["evaluate", copy, f"{copy}.data"]):
        assert main([*command, "--json"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert main(["rank", "rrf", str(planted), "-o", f"{view}2", "--expand-items", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
