"""One contract for every registered model."""

from __future__ import annotations

import dataclasses
import pickle
from functools import cache

import numpy as np
import pytest
from rounds_by_hand import run
from strategies import Query, build_chunk, drawn_chunks

from distagg.dataset.chunk import Chunk
from distagg.engine.fitting.boost import grow
from distagg.models import MODELS, Model
from distagg.models.boosted.blend import Blend
from distagg.models.boosted.fusion import Fusion
from distagg.models.boosted.model import LambdaMart
from distagg.models.rounds import Params
from distagg.models.trained import Trained

EVERY = sorted(MODELS)
ON_LISTS = {name for name in MODELS if "lists" in MODELS[name].inputs}
ADDITIVE = sorted(name for name in MODELS if MODELS[name].additive)
VARIANTS = {
    "borda": [{"unlisted": "average"}, {"unlisted": "ignore"}],
    "mean": [{"unlisted": "ignore"}],
    "median": [{"unlisted": "last"}, {"unlisted": "ignore"}],
    "condorcet": [{"unlisted": "ignore"}],
    "copeland": [{"unlisted": "ignore"}],
    "combsum": [{"norm": "minmax"}, {"norm": "sum"}, {"norm": "zmuv"}, {"norm": "zmuv", "unlisted": "zero"}],
    "combmnz": [{"norm": "zmuv"}, {"unlisted": "ignore"}, {"norm": "dbsf"}],
    "combgmnz": [{"norm": "borda"}, {"unlisted": "ignore"}],
    "combanz": [{"norm": "l2"}],
    "combmed": [{"norm": "max"}],
    "combmin": [{"norm": "zmuv"}],
    "log_isr": [{"sigma": 0.1}],
    "probfuse": [{"segments_per_list": 2}],
    "slidefuse": [{"window": 1}],
    "outranking": [{"preference": 0.2, "veto": 0.5, "concordance": 0.5, "discordance": 0.0}],
    "mpm": [
        {"unlisted": "ignore"},
        {"variance": True},
        {"pairs": "log"},
        {"pairs": "binary"},
        {"variance": True, "caution": 2.0, "unlisted": "ignore"},
    ],
    "mixture_mpm": [{"mixture": 3, "group": 2, "unlisted": "ignore"}],
    "kemeny": [{"unlisted": "ignore"}, {"effort": 0}, {"effort": 0, "exact": "milp"}],
    "mallows": [{"unlisted": "ignore"}, {"scores": "places"}],
    "partial_mallows": [{"unlisted": "last", "rounds": 4, "tolerance": 1e9}],
    "cranking": [{"unlisted": "ignore"}],
    "mc1": [{"local_kemeny": True}],
    "plackett_luce": [
        {"unlisted": "ignore"},
        {"solver": "mm"},
        {"solver": "ilsr"},
        {"solver": "bayes"},
        {"solver": "gradient", "rate": 0.2, "tolerance": 1e-6},
        {"ties": "order"},
    ],
    "mc4": [{"unlisted": "ignore"}, {"local_kemeny": True}],
    "cps": [{"distance": "footrule"}, {"distance": "spearman", "unlisted": "last"}],
    "crf": [
        {"sharing": "consensus"},
        {"sharing": "mixed"},
        {"mode": "gradient", "pairs": "log+binary+top", "top": 2},
        {"orders": 20},
    ],
    "lambdarank": [
        {"hidden": 3, "layers": 2, "rank": 2},
        {"experts": "combined"},
        {"features": "borda", "mode": "gradient"},
        {"features": "sums", "pairs": "binary"},
        {"pairs": "all"},
        {"objective": "rbp"},
        {"objective": "ranknet"},
        {"features": "cp", "rank": 2},
    ],
    "blend": [{"crf": 0, "lambdamart": 1, "lambdarank": 2}],
    "stagg": [{"mode": "gradient", "ranks": "normal"}, {"objective": "err"}, {"objective": "rbp", "features": "borda"}],
    "svp": [{"unlisted": "ignore"}, {"pairs": "log"}, {"pairs": "difference", "unlisted": "ignore", "joint": "sum"}],
    "bradley_terry": [
        {"pairs": "difference", "unlisted": "ignore"},
        {"ties": "davidson", "pairs": "log"},
        {"prior": "gamma", "ties": "rao_kupper"},
        {"errors": "bootstrap", "resamples": 3},
        {
            "route": "lists",
            "unlisted": "ignore",
            "weight": 0.5,
        },  # auto stops seeking within 1%: elsewhere by this route
        {"route": "lists", "unlisted": "ignore", "weight": 0.5, "pairs": "log"},
        {"route": "lists", "unlisted": "ignore", "weight": 0.5, "ties": "ignore"},
        {"solver": "gradient", "weight": 1.0, "rate": 0.1, "pairs": "log"},
    ],
    "hodgerank": [{"flow": "logit"}, {"unlisted": "ignore", "pairs": "difference"}],
    "thurstone": [{"pairs": "normalised"}],
    "crowd_bt": [{"prior": "virtual", "ties": "ignore"}, {"weight": 0.5}],
    "noisy_bt": [{"prior": "virtual", "weight": 0.2}],
    "schulze": [{"unlisted": "ignore"}],
    "ranked_pairs": [{"unlisted": "ignore"}],
    "kwiksort": [{"unlisted": "ignore", "tries": 1}],
    "glicko2": [{"period": "2"}],
    "win_rate": [{"over": "opponents"}, {"ties": "ignore", "unlisted": "ignore"}],
    "newman": [{"ties": "half"}, {"weight": 0.1, "unlisted": "ignore"}],
    "pagerank": [{"damping": 0.5, "unlisted": "ignore"}],
    "eigen": [{"smoothing": 0.5}, {"transposed": True}],
    "rank_centrality": [{"uncompared": "half", "unlisted": "ignore"}, {"pairs": "difference", "alpha": 0.1}],
    "stagg_bc": [{"contest": "paper", "unlisted": "average"}],
    "stagg_rrf": [{"contest": "paper", "unlisted": "average", "c": 60.0}],
}
SETTINGS = [(name, {}) for name in EVERY] + [(name, s) for name, many in VARIANTS.items() for s in many]

SEARCHED = (
    "condorcet",
    "kemeny",
    "ranked_pairs",
    "kwiksort",
    "partial_mallows",
)  # orders from a start, which ties and cycles leave to the order of items
UNSORTED = [s for s in SETTINGS if s[0] not in SEARCHED and not s[1].get("local_kemeny")]
UNSORTED = [s for s in UNSORTED if s[1].get("scores") != "places" and s[1].get("ties") != "order"]


TRAINING = build_chunk(
    [
        Query(4, {0: {0: 1, 1: 2, 2: 3, 3: 4}, 1: {1: 1, 0: 2, 3: 3}, 2: {3: 1, 2: 2, 0: 5}}, [2, 1, 0, 0]),
        Query(3, {0: {2: 1, 0: 2}, 3: {2: 1, 1: 4, 0: 6}, 4: {0: 1, 2: 2}}, [0, 0, 1]),
    ],
    n_experts=5,
)


@cache
def ready(model: Model) -> Params:
    """Parameters a model can score with: the first candidate, or what it learns from a little training."""
    candidates = model.candidates(TRAINING.n_experts)
    if candidates:
        return candidates[0]
    if isinstance(model, LambdaMart):
        trees = grow(model, model.dense(TRAINING), TRAINING.labels, np.diff(TRAINING.item_offsets))
        return {**trees, "expert_row": np.arange(5.0)}
    if isinstance(model, Blend):
        learned = {name: ready(member) for name, member in model.members.items()}
        return model.joined(learned, dict.fromkeys(model.kinds, 1.0))
    if isinstance(model, Fusion):
        return model.as_params(model.plain, (1.0, 0.5, 0.25, 1.0, 0.125))
    if isinstance(model, Trained):
        state = model.first(TRAINING.n_experts, 2.0)
        while not state.done:
            state = state.finish(state.sent().map(TRAINING))
        return state.params
    return run(model.learning(TRAINING.n_experts, {}), [TRAINING]) if model.learns else {}


def scores_of(model: Model, chunk: Chunk) -> np.ndarray:
    return model.score(chunk, ready(model))


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_scores_are_finite_one_per_item(name, settings):
    for _, chunk in drawn_chunks(30):
        scores = scores_of(MODELS[name](**settings), chunk)
        assert scores.shape == (chunk.n_items,)
        assert np.isfinite(scores).all()


@pytest.mark.parametrize(("name", "settings"), [s for s in SETTINGS if "seed" not in MODELS[s[0]].__dataclass_fields__])
def test_models_without_a_seed_do_not_care_where_a_query_stands(name, settings):
    """Scheduled runs take rankings over on the strength of this."""
    model = MODELS[name](**settings)
    moved = dataclasses.replace(TRAINING, positions=TRAINING.positions + 1000)
    assert scores_of(model, moved).tobytes() == scores_of(model, TRAINING).tobytes()


@pytest.mark.parametrize("name", EVERY)
def test_pickles(name):
    model = MODELS[name]()
    assert pickle.loads(pickle.dumps(model)) == model


@pytest.mark.parametrize("name", EVERY)
def test_documents_itself(name):
    model = MODELS[name]
    assert model.summary
    assert model.paper
    assert model.name == name


@pytest.mark.parametrize(
    "query",
    [
        Query(1, {0: {0: 1.0}}),
        Query(1),
        Query(4),
        Query(4, {2: {0: 1.0, 1: 2.0}}),
        Query(3, {0: {0: 7.0, 1: 7.0, 2: 7.0}, 1: {0: 1.0, 1: 1.0, 2: 1.0}}),
        Query(3, {0: {0: 1.0, 1: 2.0, 2: 3.0}, 1: {1: 1.0, 2: 2.0, 0: 3.0}, 2: {2: 1.0, 0: 2.0, 1: 3.0}}),
        Query(3, {4: {0: 530.0, 2: 12.0}}),
    ],
    ids=["one item", "one item, no list", "no list", "one expert", "all tied", "a cycle", "ranks beyond the items"],
)
@pytest.mark.parametrize("name", EVERY)
def test_hard_queries_get_finite_scores(name, query):
    scores = scores_of(MODELS[name](), build_chunk([query], n_experts=5))
    assert scores.shape == (query.size,)
    assert np.isfinite(scores).all()


TAKE_PAIRS = sorted(name for name in MODELS if "pairs" in MODELS[name].inputs)
NOTHING_SAID = {
    "no pair": [],
    "weights of 0": [(0, 1, 0.0, False), (1, 2, 0.0, False)],
    "all ties": [(0, 1, 1.0, True), (1, 2, 1.0, True), (0, 2, 1.0, True)],
    "a cycle": [(0, 1, 1.0, False), (1, 2, 1.0, False), (2, 0, 1.0, False)],
}


@pytest.mark.parametrize("pairs", NOTHING_SAID.values(), ids=NOTHING_SAID)
@pytest.mark.parametrize("name", TAKE_PAIRS)
def test_pairs_that_say_nothing_leave_all_equal(name, pairs):
    """Three items that nothing tells apart; models that must order them (a sort, a search) order them somehow."""
    scores = scores_of(MODELS[name](), build_chunk([Query(3, pairs=pairs)], n_experts=5))
    assert np.isfinite(scores).all()
    if name not in SEARCHED and name != "elo":  # in which the last battles count most
        np.testing.assert_allclose(scores, scores[0], atol=1e-6)


@pytest.mark.parametrize("name", TAKE_PAIRS)
def test_the_unbeaten_stands_first_and_the_winless_last(name):
    """Every model gives finite scores where maximum likelihood has none."""
    pairs = [(1, 0, 1.0, False), (0, 2, 1.0, False), (1, 2, 1.0, False), (2, 3, 1.0, False), (1, 3, 2.0, False)]
    scores = scores_of(MODELS[name](), build_chunk([Query(4, pairs=pairs)], n_experts=5))
    assert np.isfinite(scores).all()
    assert scores.argmax() == 1
    assert scores.argmin() == 3


@pytest.mark.parametrize("name", EVERY)
def test_an_empty_chunk_gives_no_scores(name):
    assert scores_of(MODELS[name](), build_chunk([], n_experts=5)).shape == (0,)


# What they learn of a place can be anything, nothing at all for places that no training list has.
BY_PLACE = {"probfuse", "segfuse", "slidefuse", "posfuse", "bayesfuse"}


@pytest.mark.parametrize("name", sorted(ON_LISTS - {"bestinput"} - BY_PLACE))
def test_unanimous_experts_are_followed(name):
    """Full agreement leaves no doubt, whatever the model."""
    order = [3, 0, 4, 1, 2]
    ranks = {item: place + 1.0 for place, item in enumerate(order)}
    scores = scores_of(MODELS[name](), build_chunk([Query(5, dict.fromkeys(range(4), ranks))], n_experts=5))
    assert np.argsort(-scores, kind="stable").tolist() == order


@pytest.mark.parametrize(("name", "settings"), UNSORTED)
def test_the_order_of_items_changes_no_score(name, settings):
    """Items turned round: the same scores turned round. (Sorting by cyclic majorities has no such property.)"""
    model = MODELS[name](**settings)
    for chunk, turned in turned_round():
        here, there = scores_of(model, chunk), scores_of(model, turned)
        for q in range(chunk.n_queries):
            span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            np.testing.assert_allclose(here[span], there[span][::-1], atol=1e-8)


@cache
def turned_round() -> list[tuple[Chunk, Chunk]]:
    """Chunks, and the same with the items of every query in the opposite order."""

    def turned(query: Query) -> Query:
        last = query.size - 1
        return Query(query.size, {e: {last - i: r for i, r in ranks.items()} for e, ranks in query.lists.items()})

    return [(chunk, build_chunk([turned(q) for q in made], n_experts=5)) for made, chunk in drawn_chunks(30)]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_a_query_is_scored_the_same_in_any_company(name, settings):
    model = MODELS[name](**settings)
    for _, chunk in drawn_chunks(20, most_queries=3):
        together = scores_of(model, chunk)
        for q in range(chunk.n_queries):
            alone = chunk.select(np.arange(chunk.n_queries) == q)
            span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            np.testing.assert_array_equal(scores_of(model, alone), together[span])


@cache
def split_by_expert() -> list[tuple[Chunk, list[Chunk]]]:
    """Queries, and their lists spread over chunks, as in an expert-partitioned dataset."""
    return [
        (chunk, [build_chunk([Query(q.size, {e: ranks})], n_experts=5) for e, ranks in sorted(q.lists.items())])
        for (q,), chunk in drawn_chunks(40, most_queries=1)
        if q.lists
    ]


WHOLE = ({"solver": "ilsr"}, {"solver": "bayes"})  # for whole queries alone


@pytest.mark.parametrize(("name", "settings"), [s for s in SETTINGS if s[0] in ADDITIVE and s[1] not in WHOLE])
def test_statistics_of_split_queries_add_up(name, settings):
    """Split by expert, mapped and merged in either order: the scores of the whole query."""
    model = MODELS[name](**settings)
    for chunk, pieces in split_by_expert():
        whole = model.score(chunk, ready(model))
        for right in (False, True):
            gathered = run(model.gathering(ready(model)), pieces, right=right)
            np.testing.assert_allclose(model.score_split(pieces[0], gathered), whole, atol=1e-8)
