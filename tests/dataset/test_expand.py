"""Expanded datasets: what stands where, against dense matrices; nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import build_chunk, chunks

from distagg.cli.main import main
from distagg.dataset import Dataset, write_dataset
from distagg.dataset.expand import expand_chunk, expand_dataset
from distagg.engine.compare import evaluate_model
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
    lists = [(e, tuple(c.entry_item[c.entry_offsets[n] : c.entry_offsets[n + 1]]))
             for c in (ref.load() for ref in made.plan(100)) for n, e in enumerate(c.list_expert)]  # fmt: skip
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
