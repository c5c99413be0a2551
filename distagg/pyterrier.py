"""A PyTerrier transformer that fuses the results of several others by any model.

PyTerrier is loaded if it is installed; ``Fuse`` then combines with other transformers by PyTerrier's operators. Without
it, ``Fuse`` takes and gives the same pandas frames: queries in (qid, query), results out (qid, docno, score, rank).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distagg.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

try:
    from pyterrier import Estimator
except ImportError:
    Estimator = object

RUN = "run"  # the column that names the expert of a row
MOST = 1000


class Fuse(Estimator):  # type: ignore[misc]
    """Results of several transformers, combined into one ranking per query.

    Parameters
    ----------
    *retrievers
        Transformers, or functions from a frame of queries to a frame of results. Without any, ``transform`` takes
        results whose column ``run`` says which system a row is from.
    model
        A model's name (a key of ``distagg.MODELS``), or a model object.
    names
        Names of the retrievers, for weights and explanations; default ``run0``, ``run1``, ...
    top
        The number of results to keep for each query; 0 keeps all.
    **settings
        Parameters of the model: ``weights={"dense": 2}``.

    Examples
    --------
    >>> import pandas as pd
    >>> queries = pd.DataFrame({"qid": ["q1"], "query": ["cats"]})
    >>> def bm25(queries):
    ...     return pd.DataFrame({"qid": "q1", "docno": ["a", "b"], "score": [9.0, 8.0]})
    >>> def dense(queries):
    ...     return pd.DataFrame({"qid": "q1", "docno": ["b", "c"], "score": [0.9, 0.8]})
    >>> fused = Fuse(bm25, dense, model="rrf", names=["bm25", "dense"]).transform(queries)
    >>> fused[["qid", "query", "docno", "rank"]].values.tolist()
    [['q1', 'cats', 'b', 0], ['q1', 'cats', 'a', 1], ['q1', 'cats', 'c', 2]]
    """

    def __init__(
        self,
        *retrievers: Callable[[pd.DataFrame], pd.DataFrame],
        model: Any = "rrf",
        names: Sequence[str] | None = None,
        top: int = MOST,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.retrievers = retrievers
        self.names = list(names) if names is not None else [f"run{n}" for n in range(len(retrievers))]
        if len(self.names) != len(retrievers) or len(set(self.names)) != len(self.names):
            raise UsageError(f"found names {self.names} for {len(retrievers)} retrievers, expected a name for each")
        self.model, self.top, self.settings = model, top, settings
        self.fitted: Any = None

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The fused results of queries, or of results with a column ``run``; rank is from 0, as PyTerrier has it."""
        import distagg

        results = self._results(inp)
        chosen = self.fitted if self.fitted is not None else self.model
        settings = {} if self.fitted is not None else self.settings
        ranking = distagg.rank(chosen, self._lists(results), top=self.top, **settings)
        columns = {"query": "qid", "item": "docno", "score": "score", "rank": "rank"}
        fused = ranking[list(columns)].rename(columns=columns)
        fused["rank"] -= 1
        known = inp.drop_duplicates("qid").set_index("qid")
        for column in ("query", *(name for name in known.columns if name.startswith("query_"))):
            if column in known.columns:
                fused.insert(1, column, fused["qid"].map(known[column]))
        return fused

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> None:
        """Learn from judgements (qid, docno, label); the validation queries decide when training stops."""
        import pandas as pd

        import distagg

        labels = qrels_tr if qrels_va is None else pd.concat([qrels_tr, qrels_va])
        valid = None if topics_or_res_va is None else self._lists(self._results(topics_or_res_va))
        self.fitted = distagg.fit(
            self.model,
            self._lists(self._results(topics_or_res_tr)),
            labels=labels[["qid", "docno", "label"]],
            valid=valid,
            **self.settings,
        )

    def _results(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The results of all retrievers one below the other, with the column ``run``."""
        import pandas as pd

        if self.retrievers:
            found = [
                retrieve(inp).assign(**{RUN: name}) for name, retrieve in zip(self.names, self.retrievers, strict=True)
            ]
            return pd.concat(found, ignore_index=True)
        if RUN not in inp.columns:
            raise UsageError(
                f"found columns {', '.join(inp.columns)}, expected '{RUN}' as well: give Fuse its retrievers"
            )
        return inp

    @staticmethod
    def _lists(results: pd.DataFrame) -> pd.DataFrame:
        """What a model takes of results. Ids are text; ranks are left to the scores, as in trec_eval."""
        lists = results[["qid", "docno", "score", RUN]]
        return lists.astype({"qid": str, "docno": str, RUN: str})

    def __repr__(self) -> str:
        return f"Fuse({', '.join([*map(str, self.names), f'model={self.model!r}'])})"
