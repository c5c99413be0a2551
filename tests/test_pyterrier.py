"""The PyTerrier transformer, by PyTerrier's protocol: frames of queries in, frames of results out."""

from __future__ import annotations

import pandas as pd
import pytest

import distagg
from distagg.errors import UsageError
from distagg.pyterrier import Fuse

QUERIES = pd.DataFrame({"qid": ["1", "2"], "query": ["cats", "dogs"]})
BM25 = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "c"], "score": [9.0, 8.0, 7.0], "rank": [0, 1, 0]})
DENSE = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["b", "d", "e"], "score": [0.9, 0.8, 0.7], "rank": [0, 1, 0]})
QRELS = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["b", "a", "e"], "label": [1, 0, 1]})


class Source:
    """A transformer that has its results already, and answers for the queries it is asked."""

    def __init__(self, results: pd.DataFrame) -> None:
        self.results = results

    def __call__(self, queries: pd.DataFrame) -> pd.DataFrame:
        return self.results.merge(queries[["qid", "query"]], on="qid")


def test_results_are_those_of_rank() -> None:
    fused = Fuse(Source(BM25), Source(DENSE), names=["bm25", "dense"]).transform(QUERIES)
    assert list(fused.columns) == ["qid", "query", "docno", "score", "rank"]
    runs = {
        name: {qid: dict(zip(rows["docno"], rows["score"], strict=True)) for qid, rows in frame.groupby("qid")}
        for name, frame in (("bm25", BM25), ("dense", DENSE))
    }
    for qid, scores in distagg.rank("rrf", runs).items():
        ours = fused[fused["qid"] == qid]
        assert dict(zip(ours["docno"], ours["score"], strict=True)) == pytest.approx(scores)
        assert ours["rank"].tolist() == list(range(len(scores)))
    assert fused.groupby("qid")["query"].first().to_dict() == {"1": "cats", "2": "dogs"}


def test_settings_top_and_queries_asked() -> None:
    for heavy, second in (("bm25", "c"), ("dense", "e")):
        fuse = Fuse(Source(BM25), Source(DENSE), names=["bm25", "dense"], top=1, weights={heavy: 5})
        assert fuse.transform(QUERIES)["docno"].tolist() == ["b", second]
    assert fuse.transform(QUERIES[:1])["qid"].unique().tolist() == ["1"]


def test_rows_that_name_their_run() -> None:
    rows = pd.concat([BM25.assign(run="bm25"), DENSE.assign(run="dense")])
    assert Fuse().transform(rows)[["qid", "docno"]].values.tolist()[0] == ["1", "b"]
    with pytest.raises(UsageError, match="expected 'run' as well"):
        Fuse().transform(BM25)


def test_it_learns_from_judgements() -> None:
    fuse = Fuse(Source(BM25), Source(DENSE), model="bestinput", names=["bm25", "dense"])
    fuse.fit(QUERIES, QRELS, QUERIES, QRELS.assign(label=[1, 0, 1]))
    assert fuse.transform(QUERIES).groupby("qid")["docno"].first().to_dict() == {"1": "b", "2": "e"}


def test_names_must_fit() -> None:
    with pytest.raises(UsageError, match="expected a name for each"):
        Fuse(Source(BM25), names=["a", "b"])


def test_in_a_pipeline_of_pyterrier() -> None:
    pt = pytest.importorskip("pyterrier", reason="PyTerrier is not installed")
    sources = [pt.Transformer.from_df(frame) for frame in (BM25, DENSE)]
    fuse = Fuse(*sources, names=["bm25", "dense"])
    assert isinstance(fuse, pt.Transformer)
    cut = fuse % 1
    assert cut(QUERIES)["docno"].tolist() == Fuse(*sources, top=1).transform(QUERIES)["docno"].tolist()
