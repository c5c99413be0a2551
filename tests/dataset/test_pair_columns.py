"""Times, order and covariates of pairs: stored, read back, selected."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.covariates import DesignColumn
from distagg.dataset import Dataset, write_dataset
from distagg.errors import InputError, UsageError
from distagg.sources.observed_pairs import PairsSource
from distagg.types import PAIRS_TABLE

HEADER = "model_a,model_b,winner,tstamp,length_a,length_b,language,judge\n"
ROWS = [
    "x,y,model_a,2026-01-03,100,50,en,u1\n",
    "y,z,model_b,2026-01-01,10,20,de,u2\n",
    "z,x,tie,2026-01-02,5,7,en,u1\n",
    "x,z,tie (bothbad),2026-01-02,5,7,fr,u2\n",
]
COVARIATES = "length,position,language"


def battles(folder, rows=ROWS, header=HEADER):
    file = folder / "battles.csv"
    file.write_text(header + "".join(rows))
    return file


def written(folder, covariates=COVARIATES, rows=ROWS, header=HEADER, name="d", **how):
    write_dataset(PairsSource([battles(folder, rows, header)], covariates=covariates), folder / name, **how)
    return Dataset.open(folder / name)


def test_rows_keep_their_columns_wherever_they_move(tmp_path):
    dataset = written(tmp_path)
    assert dataset.info()["times"] == ["2026-01-01", "2026-01-03"]
    assert [each.levels for each in dataset.manifest.covariates] == [(), (), ("en", "de", "fr")]
    (chunk,) = dataset.chunks()
    assert chunk.covariate_names == ("length_winner", "length_loser", "position", "language")
    assert chunk.pair_order.tolist() == [0, 2, 1, 3]
    back = np.argsort(chunk.pair_order)
    assert chunk.pair_covariates[:, back].T.tolist() == [[100, 50, 1, 1], [20, 10, -1, -2], [5, 7, 1, 1], [5, 7, 1, 3]]
    days = (chunk.pair_time[back] - chunk.pair_time.min()) // (86_400 * 10**6)
    assert days.tolist() == [2, 0, 1, 1]
    assert chunk.pair_order[chunk.sequence()].tolist() == [1, 2, 3, 0]


def test_the_order_of_rows_is_the_same_for_any_blocks(tmp_path):
    draw = np.random.default_rng(0)
    rows = [f"x,y,model_a,2026-01-{draw.integers(1, 5):02},{i},0,en,u{draw.integers(4)}\n" for i in range(300)]
    for small, how in enumerate(({}, {"block_entries": 7}, {"memory_bytes": 1000, "block_entries": 50})):
        dataset = written(tmp_path, rows=rows, name=f"d{small}", **how)
        chunks = [ref.load() for ref in dataset.plan(1)]
        assert len(chunks) > small
        order = np.concatenate([chunk.pair_order for chunk in chunks])
        length = np.concatenate([chunk.pair_covariates[0] for chunk in chunks])
        assert sorted(order) == list(range(300))
        assert (length == order).all()


def test_pairs_of_one_expert_stay_in_the_order_of_the_file(tmp_path):
    header, rows = "winner,loser\n", ["x,y\n", "z,x\n", "x,z\n"]
    (chunk,) = written(tmp_path, (), rows, header).chunks()
    assert not len(chunk.pair_order)
    assert chunk.sequence().tolist() == [0, 1, 2]


def test_datasets_without_more_columns_are_as_they_were(tmp_path):
    written(tmp_path, (), ["x,y\n", "z,x\n"], "winner,loser\n")
    assert pq.read_schema(tmp_path / "d" / "pairs-00000.parquet").equals(PAIRS_TABLE)
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    assert not {"times", "moved", "covariates"} & set(manifest)


def test_selections_keep_the_columns(tmp_path):
    (chunk,) = written(tmp_path).chunks()
    twice = chunk.repeat_experts(np.array([2, 0]))
    assert twice.pair_order.tolist() == [0, 0, 2, 2]
    assert twice.pair_covariates[0].tolist() == [100, 100, 5, 5]
    assert chunk.without([0]).pair_time.tolist() == chunk.pair_time[2:].tolist()
    none = chunk.select(np.array([False]))
    assert (none.n_pairs, len(none.pair_time), none.pair_covariates.shape) == (0, 0, (4, 0))
    position = chunk.with_covariates([DesignColumn("position", ("position",))])
    assert position.pair_covariates.tolist() == [[1, 1, -1, 1]]


def test_columns_that_are_not_wanted_are_not_read(tmp_path):
    dataset = written(tmp_path)
    (chunk,) = dataset.select(covariates="length").chunks()
    assert chunk.covariate_names == ("length",)
    assert chunk.pair_covariates[0][np.argsort(chunk.pair_order)].tolist() == [50, 10, -2, -2]
    assert len(chunk.pair_time)
    (chunk,) = dataset.select(covariates="").chunks()
    assert chunk.covariate_names == ()
    assert not chunk.pair_covariates.size


def test_categories_become_indicators(tmp_path):
    (chunk,) = written(tmp_path).select(covariates="language,position").chunks()
    assert chunk.covariate_names == ("language=en", "language=fr", "position")
    assert chunk.pair_covariates[:, np.argsort(chunk.pair_order)].tolist() == [
        [1, 0, 1, 0],
        [0, 0, 0, 1],
        [1, -1, 1, 1],
    ]


def test_pairs_by_time(tmp_path):
    dataset = written(tmp_path)

    def rows(**when):
        return sorted(row for chunk in dataset.select(**when).chunks() for row in chunk.pair_order.tolist())

    assert rows(since="2026-01-02") == [0, 2, 3]
    assert rows(until="2026-01-02") == [1]
    assert rows(since="2026-01-02", until="2026-01-03") == [2, 3]
    for when in ({"since": "2027-01-01"}, {"until": "2026-01-01"}, {"since": "2026-01-02", "until": "2026-01-02"}):
        with pytest.raises(UsageError, match="2026-01-01 to 2026-01-03"):
            dataset.select(**when)


def test_pairs_lose_half_their_weight(tmp_path):
    dataset = written(tmp_path)

    def weights(**when):
        (chunk,) = dataset.select(**when).chunks()
        return dict(zip(chunk.pair_order.tolist(), chunk.pair_weight.tolist(), strict=True))

    assert weights(half_life="1d") == {0: 1, 1: 0.25, 2: 0.5, 3: 0.5}
    assert weights(half_life="24h", now="2026-01-05") == {0: 0.25, 1: 0.0625, 2: 0.125, 3: 0.125}
    assert weights(half_life="1d", now="2026-01-02") == {0: 1, 1: 0.5, 2: 1, 3: 1}
    assert weights(half_life="1d", until="2026-01-03") == {1: 0.25, 2: 0.5, 3: 0.5}


def test_no_times_no_selection(tmp_path):
    with pytest.raises(UsageError, match="no times"):
        written(tmp_path, (), ["x,y\n"], "winner,loser\n").select(half_life="1d")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,y,model_a,soon,1,2,en,u1\n", r":3: .*tstamp 'soon'.*date such as"),
        ("x,y,model_a,,1,2,en,u1\n", r":3: .*empty tstamp"),
        ("x,y,model_a,2026-01-01,long,2,en,u1\n", r":3: .*length_a 'long'.*finite number"),
        ("x,y,model_a,2026-01-01,1,,en,u1\n", r":3: .*empty length_b"),
        ("x,y,model_a,2026-01-01,1,nan,en,u1\n", r":3: .*length_b 'nan'"),
        ("x,y,model_a,2026-01-01,1,2,,u1\n", r":3: .*empty language"),
    ],
)
def test_bad_cells_are_refused_with_their_line(tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        written(tmp_path, rows=[ROWS[0], row])


def test_times_in_some_files_only_are_refused(tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("winner,loser\nx,y\n")
    with pytest.raises(InputError, match="no column 'time'"):
        PairsSource([battles(tmp_path), other])


def test_tables_may_have_times():
    table = pa.table({"winner": ["x", "y"], "loser": ["y", "x"], "date": ["2026-01-02", "2026-01-01"]})
    (chunk,) = Dataset.from_arrow(table).chunks()
    assert chunk.sequence().tolist() == [1, 0]
    with pytest.raises(InputError, match=r":2: .*time 'never'"):
        Dataset.from_arrow(table.set_column(2, "date", [["2026-01-02", "never"]]))


def test_arrow_and_back(tmp_path):
    dataset = written(tmp_path)
    from distagg.dataset.frames import dataset_from_arrow

    again = dataset_from_arrow(dataset.to_arrow(), covariates=dataset.manifest.covariates)
    assert again.to_arrow().equals(dataset.to_arrow())
    assert again.manifest.covariates == dataset.manifest.covariates
    assert again.manifest.times == dataset.manifest.times
