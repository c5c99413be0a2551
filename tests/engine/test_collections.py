"""Dask collections: the rows stay on the workers, and the answers are those of the same rows in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distagg
from distagg.dataset import Dataset, write_dataset
from distagg.engine.dask_matrices import RemoteChunk
from distagg.engine.runner import as_runner
from distagg.errors import DistaggError, UsageError
from distagg.sources.ratings import RatingsSource

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A cluster of two workers, threads of this process; its client is the current one."""
    from distributed import Client

    with Client(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as connected:
        yield connected


@pytest.fixture(scope="module")
def rows(planted: Path) -> Any:
    """The planted lists as a shuffled pandas frame: the rows of a query are in several partitions."""
    frame = Dataset.open(planted).to_pandas()
    return frame.sample(frac=1.0, random_state=1).reset_index(drop=True)


def by_query(frame: Any) -> Any:
    return frame.sort_values(["query", "rank"]).reset_index(drop=True)


@pytest.mark.cluster
@pytest.mark.parametrize("model", ["rrf", "borda", "bradley_terry", "theta_mpm"])
def test_ranking_a_dask_frame_has_the_bits_of_the_frame(model: str, client: Any, rows: Any) -> None:
    answer = distagg.rank(model, dd.from_pandas(rows, npartitions=5))
    assert isinstance(answer, dd.DataFrame)
    found, expected = by_query(answer.compute()), by_query(distagg.rank(model, rows))
    if model == "theta_mpm":  # its sums over queries are in another order
        np.testing.assert_allclose(found.pop("score"), expected.pop("score"), rtol=1e-6)
        found, expected = found[["query", "item"]], expected[["query", "item"]]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.cluster
def test_the_rows_are_on_the_workers_and_bits_do_not_depend_on_their_number(client: Any, rows: Any) -> None:
    from distributed import Client

    frame = dd.from_pandas(rows, npartitions=4)
    dataset = Dataset.from_dask(frame)
    assert all(isinstance(chunk, RemoteChunk) for chunk in dataset.held)
    inline = Dataset.from_pandas(rows)
    assert dataset.experts == inline.experts
    told, expected = dataset.info(), inline.info()
    assert {name: told[name] for name in told if name not in ("blocks", "chunks")} == {
        name: expected[name] for name in told if name not in ("blocks", "chunks")
    }
    fitted = distagg.fit("lambdarank", dataset, rounds=3)
    with Client(
        n_workers=1, threads_per_worker=3, processes=False, dashboard_address="127.0.0.1:0", set_as_default=False
    ) as other:
        again = distagg.fit("lambdarank", frame, rounds=3, runner=other)
    np.testing.assert_equal(again.params, fitted.params)
    here = Dataset.from_arrow(dataset.to_arrow())
    assert here.manifest.entries == dataset.manifest.entries


@pytest.mark.cluster
def test_evaluation_of_dask_frames(client: Any, rows: Any) -> None:
    frame = dd.from_pandas(rows, npartitions=3)
    found = distagg.evaluate(distagg.rank("rrf", frame), frame, ["ndcg@5", "map", "err"])
    expected = distagg.evaluate(distagg.rank("rrf", rows), rows, ["ndcg@5", "map", "err"])
    assert found.means == pytest.approx(expected.means, abs=1e-12)
    assert found.protocol == expected.protocol
    pd.testing.assert_frame_equal(
        found.table().to_pandas().sort_values("query", ignore_index=True),
        expected.table().to_pandas().sort_values("query", ignore_index=True),
    )


@pytest.mark.cluster
def test_labels_may_be_a_dask_frame_too(client: Any, rows: Any) -> None:
    lists, labels = rows.drop(columns="label"), rows[["query", "item", "label"]].drop_duplicates()
    for given in (labels, dd.from_pandas(labels, npartitions=2)):
        dataset = Dataset.from_dask(dd.from_pandas(lists, npartitions=3), labels=given)
        assert dataset.manifest.labels == Dataset.from_pandas(lists, judgements=labels).manifest.labels


@pytest.mark.cluster
def test_a_dataset_goes_out_and_comes_back(client: Any, planted: Path) -> None:
    dataset = Dataset.open(planted)
    frame = dataset.to_dask()
    assert isinstance(frame, dd.DataFrame)
    back = Dataset.from_dask(frame)
    order = ["query", "expert", "item"]
    found, expected = (one.to_pandas().sort_values(order, ignore_index=True) for one in (back, dataset))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    pd.testing.assert_frame_equal(
        back.to_dask().compute().sort_values(order, ignore_index=True), expected, check_dtype=False
    )


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")  # of earlier versions of Dask
def test_a_ranking_in_this_process_goes_out_as_well(rows: Any) -> None:
    result = distagg.solve("rrf", rows)
    frame = result.to_dask()
    assert isinstance(frame, dd.DataFrame)
    pd.testing.assert_frame_equal(frame.compute(scheduler="sync"), result.to_pandas(), check_dtype=False)


@pytest.mark.cluster
def test_a_bag_of_lists(client: Any) -> None:
    import dask.bag

    lists = [("q", "a", ["x", "y", "z"]), {"query": "q", "expert": "b", "items": ["y", ["x", "z"]]}, (7, "a", ["w"])]
    lists.append(("q", "c", ["y"]))
    answer = distagg.rank("rrf", dask.bag.from_sequence(lists, npartitions=2)).compute()
    assert by_query(answer)["item"].tolist() == ["w", "y", "x", "z"]


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["dask.array", "numpy", "scipy", "sparse"])
def test_matrices_of_ranks_come_in_and_go_out(kind: str, client: Any) -> None:
    import dask.array
    import dask.bag
    import scipy.sparse
    import sparse

    draws = np.random.default_rng(5)
    dense = {str(n): draws.integers(0, 4, (5, 3)).astype(float) for n in range(70)}
    for matrix in dense.values():
        matrix[:, 0] = [1, 2, 3, 4, 5]  # every item is in some list, and every expert somewhere
        matrix[0, 1:] = 1
    if kind == "dask.array":
        data: Any = {query: dask.array.from_array(matrix, chunks=2) for query, matrix in dense.items()}
    else:
        make = {"numpy": np.asarray, "scipy": scipy.sparse.csr_array, "sparse": sparse.COO.from_numpy}[kind]
        data = dask.bag.from_sequence([(query, make(matrix)) for query, matrix in dense.items()], npartitions=3)
    dataset = Dataset.from_dask(data)
    assert dataset.experts == ("0", "1", "2")
    found = dict(dataset.map_queries(_matrix))
    assert found.keys() == dense.keys()
    for query, (items, matrix) in found.items():
        np.testing.assert_array_equal(matrix[np.argsort(items)], dense[query])


@pytest.mark.cluster
def test_matrices_go_out_as_dask_arrays(client: Any, rows: Any, planted: Path) -> None:
    import sparse

    disk, remote = Dataset.open(planted), Dataset.from_dask(dd.from_pandas(rows, npartitions=3))
    expected = dict(disk.map_queries(_ranks))
    for dataset in (disk, disk.select(fold=(3, {0, 2})), remote):
        arrays = dataset.to_dask_matrices()
        named = dict(dataset.map_queries(_ranks))
        assert list(arrays) == list(named)
        for query in list(arrays)[:5]:
            found = arrays[query].compute()
            assert isinstance(found, sparse.COO)
            assert found.shape == arrays[query].shape == named[query].shape
            np.testing.assert_array_equal(found.todense(), named[query])
    back = Dataset.from_dask(dict(list(disk.to_dask_matrices().items())[:8]))
    kept = [int(expert) for expert in back.experts]
    for query, (items, matrix) in back.map_queries(_matrix):
        np.testing.assert_array_equal(matrix[np.argsort(items)], expected[query][np.sort(items)][:, kept])


def _ranks(chunk: Any, query: int) -> tuple[str, np.ndarray]:
    return str(chunk.query_ids[query]), chunk.rank_matrix(query).toarray()


@pytest.mark.cluster
def test_the_matrix_of_a_split_query_is_the_sum_of_its_chunks(client: Any, tmp_path: Path) -> None:
    lines = (f"{u}\t{(u * 3 + i) % 19}\t{(u + i) % 5 + 1}\t0\n" for u in range(40) for i in range(6))
    (tmp_path / "u.data").write_text("".join(lines))
    write_dataset(RatingsSource([tmp_path / "u.data"]), tmp_path / "data", block_entries=30)
    dataset = Dataset.open(tmp_path / "data")
    (matrix,) = dataset.to_dask_matrices().values()
    assert matrix.shape == (19, 40)
    found = matrix.compute()
    assert (found.nnz, found.sum()) == (240, dataset.to_pandas()["rank"].sum())
    with pytest.raises(UsageError, match="expected lists"):
        Dataset.from_pandas(pd.DataFrame({"winner": ["a"], "loser": ["b"]})).to_dask_matrices()


@pytest.mark.cluster
def test_nothing_is_computed_before_a_dataset_is_used(client: Any) -> None:
    from distributed import Event

    frame = dd.from_map(_read, [("used", 0), ("used", 1)], meta=_made(0).iloc[:0])
    dataset = Dataset.from_dask(frame)
    assert "not read yet" in repr(dataset)
    assert "not read yet" in dataset._repr_html_()
    assert not Event("used").is_set()
    assert dataset.manifest.queries == 2
    assert Event("used").is_set()
    assert "not read yet" not in repr(dataset)
    assert dataset.select(without=["a"]).experts == ("a", "b")
    assert distagg.rank("rrf", dataset).num_rows == 4
    bad = Dataset.from_dask(dd.from_pandas(pd.DataFrame({"apple": [1]}), npartitions=1))
    with pytest.raises(DistaggError):
        bad.info()


def _made(number: int) -> Any:
    return pd.DataFrame(
        {"query": [f"q{number}"] * 3, "expert": ["a", "a", "b"], "item": list("xyx"), "rank": [1, 2, 1]}
    )


def _read(event: tuple[str, int]) -> Any:
    from distributed import Event

    Event(event[0]).set()
    return _made(event[1])


def _matrix(chunk: Any, query: int) -> tuple[str, tuple[list[int], np.ndarray]]:
    span = slice(chunk.item_offsets[query], chunk.item_offsets[query + 1])
    items = [int(item) for item in chunk.item_ids[span].to_pylist()]
    return str(chunk.query_ids[query]), (items, chunk.rank_matrix(query).toarray())


@pytest.mark.cluster
def test_ids_that_are_whole_numbers_stay_so(client: Any) -> None:
    rows = pd.DataFrame({"query": [1, 1, 2], "expert": ["a"] * 3, "item": [10, 20, 10], "score": [0.5, 0.7, 0.1]})
    answer = distagg.rank("rrf", dd.from_pandas(rows, npartitions=2)).compute()
    assert by_query(answer)[["query", "item"]].to_numpy().tolist() == [[1, 20], [1, 10], [2, 10]]


def _shape(chunk: Any, query: int) -> tuple[str, int]:
    return str(chunk.query_ids[query]), chunk.rank_matrix(query).nnz


@pytest.mark.cluster
def test_a_function_of_every_query(client: Any, rows: Any, planted: Path) -> None:
    expected = dict(Dataset.from_pandas(rows).map_queries(_shape))
    assert len(expected) == 120
    assert dict(Dataset.from_dask(dd.from_pandas(rows, npartitions=3)).map_queries(_shape)) == expected
    assert dict(Dataset.open(planted).map_queries(_shape, runner=client)) == expected


@pytest.mark.cluster
def test_a_client_is_a_runner(client: Any, planted: Path) -> None:
    dataset = Dataset.open(planted)
    assert distagg.rank("borda", dataset, runner=client) == distagg.rank("borda", dataset)
    assert as_runner(client) is as_runner(client)  # what it knows of the workers is kept


def test_a_collection_without_a_cluster() -> None:
    script = """
import pandas as pd, dask.dataframe as dd, distagg
from distagg.errors import UsageError
frame = dd.from_pandas(pd.DataFrame({"expert": ["a", "a"], "item": ["x", "y"], "rank": [1, 2]}), npartitions=1)
print(type(distagg.rank("rrf", frame)).__module__.partition(".")[0])
try:
    distagg.Dataset.from_dask(frame)
except UsageError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0] == "pandas"
    assert "create distributed.Client" in said


DRIVER = """
import resource, sys
import numpy as np
import pandas as pd
import dask.dataframe as dd
from distributed import Client, LocalCluster
import distagg

def part(number):
    draws, queries = np.random.default_rng(number), 400
    count = queries * 25 * 20
    query = np.repeat(np.arange(queries), 500) + 1000 * number
    return pd.DataFrame({
        "query": query, "expert": np.tile(np.repeat([f"engine {e:02d}" for e in range(25)], 20), queries),
        "item": np.tile(np.arange(20), queries * 25), "score": draws.random(count), "pad": "x" * 200,
    })

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50)
    with cluster, Client(cluster):
        frame = dd.from_map(part, range(4), meta=part(0).iloc[:0]).drop(columns="pad")
        distagg.rank("rrf", frame.partitions[:1]).head()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        best = distagg.rank("rrf", frame, top=1)
        print(int(best["rank"].sum().compute()), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.cluster
def test_the_data_never_passes_through_the_driver(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    queries, grown = map(int, done.stdout.split())
    assert queries == 4 * 400
    assert grown < 40  # MB; ranking the same 800,000 rows in the driver takes twice that


def test_what_is_no_client_is_left_alone() -> None:
    with pytest.raises(UsageError, match="asynchronous"):
        as_runner(_Asynchronous())


class _Asynchronous:
    asynchronous = True


_Asynchronous.__module__ = "distributed.client"
