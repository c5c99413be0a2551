"""The same bits in any place: inline, one worker, two workers; a lost worker costs time only."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.chunk_ref import ChunkRef
from distagg.engine import dask as dask_runner
from distagg.engine.broadcast import share_out
from distagg.engine.compare import compare
from distagg.engine.dask import DaskRunner, local_cluster, remote_cluster
from distagg.engine.fitting.fit import fit, gather
from distagg.engine.fitting.tune import tune
from distagg.engine.rank import rank_to, solve
from distagg.engine.runner import Cache, InlineRunner, Runner, Work
from distagg.engine.saved import Fitted
from distagg.errors import InfrastructureError, InputError, UsageError
from distagg.models import MODELS, Model, NotConvergedWarning, Params, model_named
from distagg.models.boosted.blend import Blend
from distagg.models.boosted.model import LambdaMart
from distagg.models.crf.model import Crf
from distagg.models.trained import Trained
from distagg.sources.synthetic import SyntheticSource

CLUSTERS = ("1 worker", "2 workers", "3 threads")
ADDITIVE_ON_RATINGS = sorted(
    name for name, kind in MODELS.items() if kind.additive and not kind.positive and "lists" in kind.inputs
)


@pytest.fixture(scope="module")
def three_threads() -> Iterator[DaskRunner]:
    from distributed import Client

    here = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, n_workers=1, threads_per_worker=3, **here) as client:
        yield DaskRunner(client)


@pytest.fixture(params=CLUSTERS)
def cluster(
    request: pytest.FixtureRequest, clusters: Callable[[int], DaskRunner], three_threads: DaskRunner
) -> DaskRunner:
    return three_threads if request.param == "3 threads" else clusters(int(request.param[0]))


def rank_table(model: Model, params: Params, dataset: Dataset, runner: Runner | None = None) -> pa.Table:
    return solve(model, params, dataset, runner).ranking


@pytest.fixture(scope="module")
def fine(planted: Path) -> Dataset:
    """The planted data in many chunks, so that several workers have something to share."""
    return in_chunks(Dataset.open(planted), 13)


def in_chunks(dataset: Dataset, count: int) -> Dataset:
    """The same queries held as ``count`` chunks in memory."""
    chunks = [dataset.select(fold=(count, {residue})).plan()[0].load() for residue in range(count)]
    held = tuple(chunk for chunk in chunks)
    block = dataset.manifest.blocks[0]
    blocks = tuple(
        replace(block, queries=c.n_queries, items=c.n_items, lists=c.n_lists, entries=c.n_entries) for c in held
    )
    return replace(dataset, held=held, manifest=replace(dataset.manifest, blocks=blocks))


def on_clusters(names: Iterable[str]) -> pytest.MarkDecorator:
    """Every model on threads, which share their kernels; in processes, which compile them once more, one of a kind.

    What processes add is that models travel: the contract pickles every one.
    """
    chosen = tuple(names)
    some = ("borda", "crf", "lambdamart", "plackett_luce", "rrf", "theta_mpm")
    few = {"1 worker": ("rrf", "theta_mpm"), "2 workers": some}
    cases = [(name, where) for where in CLUSTERS for name in sorted(chosen) if name in few.get(where, MODELS)]
    return pytest.mark.parametrize(("name", "cluster"), cases, indirect=["cluster"])


@pytest.mark.cluster
@on_clusters(name for name in MODELS if "lists" in MODELS[name].inputs)
def test_every_model_ranks_with_the_same_bits_on_a_cluster(
    name: str, fine: Dataset, cluster: DaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"crf 1": Crf(rounds=2), "lambdamart 1": LambdaMart(trees=5)}
    monkeypatch.setattr(Blend, "members", members)  # blend runs on threads of this process alone
    short = {"lambdamart": {"trees": 5}}
    model = MODELS[name](**({"rounds": 2} if issubclass(MODELS[name], Trained) else short.get(name, {})))
    params = {where: fit(model, fine, runner=runner) for where, runner in places(cluster)}
    tables = {where: rank_table(model, params[where], fine, runner) for where, runner in places(cluster)}
    assert tables["cluster"].equals(tables["inline"])
    for key, value in params["inline"].items():
        np.testing.assert_array_equal(params["cluster"][key], value)


@pytest.mark.cluster
@on_clusters(ADDITIVE_ON_RATINGS)
def test_split_queries_add_up_to_the_same_bits(name: str, crowd: Path, cluster: DaskRunner) -> None:
    whole = Dataset.open(crowd)
    dataset, model = split_by_expert(whole, 7), MODELS[name]()
    params = fit(model, whole)
    tables = {where: rank_table(model, params, dataset, runner) for where, runner in places(cluster)}
    assert tables["cluster"].equals(tables["inline"])


def split_by_expert(dataset: Dataset, count: int) -> Dataset:
    """The one query's lists held as ``count`` chunks in memory."""
    whole = dataset.plan()[0].load()
    edges = np.linspace(0, whole.n_lists, count + 1).astype(int)
    held, blocks = [], []
    for first, last in itertools.pairwise(edges):
        span = slice(whole.entry_offsets[first], whole.entry_offsets[last])
        held.append(
            replace(
                whole,
                list_offsets=np.array([0, last - first]),
                list_expert=whole.list_expert[first:last],
                entry_offsets=whole.entry_offsets[first : last + 1] - whole.entry_offsets[first],
                entry_item=whole.entry_item[span],
                entry_rank=whole.entry_rank[span],
            )
        )
        blocks.append(replace(dataset.manifest.blocks[0], lists=int(last - first), entries=held[-1].n_entries))
    return replace(dataset, held=tuple(held), manifest=replace(dataset.manifest, blocks=tuple(blocks)))


@pytest.mark.parametrize("name", ADDITIVE_ON_RATINGS)
def test_a_split_query_is_ranked_as_the_whole(name: str, crowd: Path) -> None:
    dataset = Dataset.open(crowd)
    model = MODELS[name]()
    params = fit(model, dataset)
    whole, split = rank_table(model, params, dataset), rank_table(model, params, split_by_expert(dataset, 7))
    np.testing.assert_allclose(sorted(whole["score"].to_numpy()), sorted(split["score"].to_numpy()), atol=1e-8)
    if name not in ("condorcet", "copeland"):
        assert whole["item"].to_pylist()[:5] == split["item"].to_pylist()[:5]


def test_what_learns_from_whole_queries_refuses_split_ones(crowd: Path) -> None:
    with pytest.raises(UsageError, match="theta_mpm learns from whole queries"):
        fit(MODELS["theta_mpm"](), split_by_expert(Dataset.open(crowd), 7))


def places(cluster: DaskRunner) -> list[tuple[str, Runner]]:
    return [("inline", InlineRunner()), ("cluster", cluster)]


@pytest.mark.cluster
def test_comparison_is_the_same_on_a_cluster(planted: Path, cluster: DaskRunner) -> None:
    dataset = Dataset.open(planted)
    here, there = (
        compare(dataset, ["rrf", "bestinput"], folds="letor5", runner=runner) for _, runner in places(cluster)
    )
    assert here["results"] == there["results"]
    assert here["tests"] == there["tests"]


@pytest.mark.cluster
def test_written_rankings_are_the_same_bytes(fine: Dataset, cluster: DaskRunner, tmp_path: Path) -> None:
    model = model_named("borda")
    for where, runner in places(cluster):
        rank_to(tmp_path / where, model, {}, fine, runner=runner)
        rank_to(tmp_path / f"{where}.csv", model, {}, fine, fmt="csv", runner=runner)
        rank_to(tmp_path / f"{where}.run", model, {}, fine, fmt="trec", runner=runner)
    names = sorted(file.name for file in (tmp_path / "inline").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "cluster").iterdir())
    for name in names:
        assert (tmp_path / "inline" / name).read_bytes() == (tmp_path / "cluster" / name).read_bytes()
    for ending in (".csv", ".run"):
        assert (tmp_path / f"inline{ending}").read_bytes() == (tmp_path / f"cluster{ending}").read_bytes()
    assert not list(tmp_path.glob(".*"))


def _kill_once(chunk: object, index: int, marker: str) -> int:
    """A task whose worker dies the first time it gets to chunk 5."""
    if index == 5 and not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return index


@pytest.mark.cluster
def test_a_killed_worker_costs_time_not_answers(fine: Dataset, tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    with local_cluster(2) as runner:
        found = list(runner.map(Work(_kill_once, str(marker)), fine.plan()))
    assert marker.exists()
    assert found == list(range(13))


def _bad(chunk: object, index: int, payload: None) -> None:
    raise InputError("part-3", line=7, found="x", expected="y")


@pytest.mark.cluster
def test_a_tasks_own_error_arrives_as_it_is(fine: Dataset, cluster: DaskRunner) -> None:
    with pytest.raises(InputError, match="part-3:7: found x, expected y"):
        list(cluster.map(Work(_bad, None), fine.plan()))


def test_plain_addresses_off_this_machine_are_refused() -> None:
    with pytest.raises(UsageError, match="tls://"), remote_cluster("tcp://10.0.0.1:8786"):
        pass


def test_importing_distagg_brings_no_dask() -> None:
    code = (
        "import sys, distagg, distagg.cli.main; from distagg import Dataset, rank, compare, fit, evaluate;"
        "print([m for m in ('dask', 'distributed') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_spans_cover_all_chunks_once_and_share_evenly() -> None:
    from distagg.dataset.manifest import Block

    sizes = [5, 1, 1, 1, 1, 1, 50, 1, 1, 1]
    refs = [ChunkRef("", "lists", "query", (Block(0, n, n, 1, 1, 1, s, ()),), 1, False) for n, s in enumerate(sizes)]
    for pieces in range(1, 12):
        spans = share_out(refs, pieces)
        assert [n for a, b in spans for n in range(a, b)] == list(range(10))
        assert len(spans) <= pieces


def test_the_cache_stays_within_its_budget(fine: Dataset) -> None:
    refs = fine.plan()
    one = refs[0].load().nbytes
    cache = Cache(budget=one * 3)
    for ref in refs * 2:
        cache.load(ref, False)
    assert 1 <= len(cache.held) < len(refs)
    assert cache.size == sum(chunk.nbytes for chunk in cache.held.values())


def test_models_that_need_whole_queries_say_so(crowd: Path) -> None:
    dataset = split_by_expert(Dataset.open(crowd), 3)
    with pytest.raises(UsageError, match="needs whole queries"):
        gather(model_named("bestinput"), {}, dataset)


@pytest.mark.cluster
def test_a_local_cluster_listens_on_loopback_only(cluster: DaskRunner) -> None:
    import psutil

    if cluster.client.scheduler.address.startswith("inproc"):
        pytest.skip("threads in this process are a cluster of the tests alone, not one that distagg starts")
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        open_ports = [c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert set(open_ports) <= {"127.0.0.1"}


@pytest.mark.cluster
def test_notes_of_models_come_back_once(fine: Dataset, cluster: DaskRunner) -> None:
    with pytest.warns(NotConvergedWarning) as caught:
        rank_table(model_named("mc4", {"steps": 1}), {}, fine, cluster)
    with pytest.warns(NotConvergedWarning) as here:
        rank_table(model_named("mc4", {"steps": 1}), {}, fine)
    assert {str(w.message) for w in caught} == {str(w.message) for w in here}


@pytest.mark.cluster
def test_a_cluster_that_runs_already(fine: Dataset, cluster: DaskRunner) -> None:
    if cluster.client.scheduler.address.startswith("inproc"):
        pytest.skip("a cluster in this process has no address to connect to")
    address = cluster.client.scheduler.address
    with remote_cluster(address) as runner:
        found = rank_table(model_named("rrf"), {}, fine, runner)
    assert found.equals(rank_table(model_named("rrf"), {}, fine))


def test_renamed_items_are_ranked_alike(fine: Dataset) -> None:
    renamed = [replace(c, item_ids=pa.array([f"new {i}" for i in c.item_ids.to_pylist()])) for c in fine.held]
    other = replace(fine, held=tuple(renamed))
    for name in sorted(name for name, model in MODELS.items() if "lists" in model.inputs and not model().needs_labels):
        here, there = rank_table(MODELS[name](), {}, fine), rank_table(MODELS[name](), {}, other)
        assert [f"new {i}" for i in here["item"].to_pylist()] == there["item"].to_pylist()
        assert here["score"].equals(there["score"])


def test_unseen_experts_come_last_and_strangers_are_refused(fine: Dataset) -> None:
    model = MODELS["bestinput"]()
    fitted = Fitted(model, fit(model, fine), fine.experts)
    names = ("newcomer", *fine.experts[1:])
    params = fitted.params_for(names)
    assert params["expert_quality"][0] == -np.inf
    assert rank_table(model, params, replace(fine, experts=names)).num_rows == fine.manifest.items
    with pytest.raises(UsageError, match="none of the dataset's experts"):
        fitted.params_for(("a", "b"))


def test_waits_that_are_cut_short_lose_no_result(cluster: DaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Future.result(timeout=...)`` may cancel the wait for a result before it begins: the next one never ends."""
    monkeypatch.setattr(dask_runner, "POLL_SECONDS", 1e-5)
    for _ in range(20):
        assert list(cluster.each(abs, range(-10, 0))) == list(range(10, 0, -1))


def test_a_tasks_own_timeout_is_an_error(cluster: DaskRunner) -> None:
    """It was taken for one of the driver's, which waited on."""
    with pytest.raises(InfrastructureError, match="the cluster lost a task"):
        list(cluster.each(_late, [0]))


def _late(_: int) -> None:
    raise TimeoutError("too late")


def test_tuning_gives_the_same_bits_in_any_place(cluster: DaskRunner, tmp_path: Path) -> None:
    write_dataset(SyntheticSource(queries=30, items=8, experts=3, seed=5), tmp_path / "data")
    data = in_chunks(Dataset.open(tmp_path / "data"), 5)
    here = tune(data, ["rrf"], folds=3, metric="ndcg@5")
    there = tune(data, ["rrf"], folds=3, metric="ndcg@5", runner=cluster)
    assert (there.model, there.as_dict()) == (here.model, here.as_dict())
