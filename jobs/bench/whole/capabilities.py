"""Method by method, who has it: ours by model name, theirs by the name under which their manuals have it.

What others have and we have not stands first. Taken from the versions in peers.txt; PyTerrier (with pyterrier-alpha),
arena-rank, openskill and pref_voting, which are not measured, from their manuals and sources of November 2026.
"""

from __future__ import annotations

PEERS = (
    "ranx", "PyTerrier", "pyflagr", "choix", "evalica", "arena-rank", "openskill", "crowd-kit", "corankco",
    "pref_voting", "LightGBM",
)  # fmt: skip
HEAD = ["method", "distagg", *PEERS]

METHODS: dict[str, dict[str, str]] = {
    "ratings updated game by game, teams": {"openskill": "rate"},
    "split cycle, instant runoff": {"pref_voting": "split_cycle, instant_runoff, ..."},
    "retrieval and reranking in the same pipeline": {"PyTerrier": ">>"},
    "interpolated precision at recall levels": {"ranx": "interpolated_precision_at_recall"},
    "Elo, PageRank, eigenvectors, Newman, share of wins": {
        "distagg": "elo, pagerank, eigen, newman, win_rate",
        "evalica": "elo, pagerank, eigen, newman, average_win_rate",
    },
    "Glicko-2": {"distagg": "glicko2"},
    "rank centrality": {"distagg": "rank_centrality", "choix": "rank_centrality"},
    "HodgeRank, share of cyclic preferences": {"distagg": "hodgerank"},
    "Bradley-Terry with covariates (style control)": {
        "distagg": "board, bradley_terry on battles with covariates", "arena-rank": "ContextualBradleyTerry",
    },
    "strengths on the Elo scale": {
        "distagg": "board --scale elo, --anchor", "evalica": "elo", "arena-rank": "scale, base, init_rating",
    },
    "Bradley-Terry with reliabilities of workers": {
        "distagg": "crowd_bt, noisy_bt", "crowd-kit": "NoisyBradleyTerry",
    },
    "Schulze, ranked pairs": {"distagg": "schulze, ranked_pairs", "pref_voting": "beat_path, ranked_pairs"},
    "KwikSort": {"distagg": "kwiksort", "corankco": "KwikSort"},
    "Kemeny's order, proved": {"distagg": "kemeny exact=milp", "corankco": "ExactAlgorithm"},
    "reciprocal rank fusion": {"distagg": "rrf", "ranx": "rrf", "PyTerrier": "RRFusion"},
    "CombSUM, CombMNZ": {
        "distagg": "combsum, combmnz", "ranx": "sum, mnz", "PyTerrier": "+", "pyflagr": "CombSUM, CombMNZ",
    },
    "  other rules on scores": {
        "distagg": "combgmnz, combanz, combmax, combmin, combmed", "ranx": "gmnz, anz, max, min, med",
    },
    "  norms of scores": {
        "distagg": "rank, borda, minmax, max, sum, l2, zmuv, dbsf; bounds",
        "ranx": "rank, borda, min-max, max, sum, zmuv", "PyTerrier": "PerQueryMaxMinScore",
        "pyflagr": "rank, borda, score, z-score",
    },
    "weights of experts": {"distagg": "weights", "ranx": "wsum, wmnz, ...", "PyTerrier": "2 * a + b"},
    "depth of lists": {"distagg": "depth, top", "PyTerrier": "%"},
    "weights and settings tuned on labels": {
        "distagg": "tune", "ranx": "optimize_fusion", "PyTerrier": "GridSearch",
    },
    "  measured on held-out queries": {"distagg": "tune", "PyTerrier": "KFoldGridSearch"},
    "  guarded against few labels": {"distagg": "tune"},
    "  as the query of a search engine": {"distagg": "tune --export"},
    "inverse square ranks, rank-biased centroids": {"distagg": "isr, log_isr, rbc", "ranx": "isr, log_isr, rbc"},
    "probabilistic fusion (ProbFuse, SegFuse, SlideFuse, BayesFuse, MAPFuse, PosFuse)": {
        "distagg": "probfuse, segfuse, slidefuse, bayesfuse, mapfuse, posfuse", "ranx": "probfuse, ...",
    },
    "robust rank aggregation, outranking, DIBRA": {
        "distagg": "rra, outranking, dibra", "pyflagr": "RobustRA, OutrankingApproach, DIBRA",
    },
    "Borda": {"distagg": "borda", "ranx": "bordafuse", "pyflagr": "BordaCount", "corankco": "BordaCount",
              "pref_voting": "borda"},
    "median and mean rank": {"distagg": "median, mean", "ranx": "med", "corankco": "MedRank"},
    "Condorcet": {
        "distagg": "condorcet", "ranx": "condorcet", "pyflagr": "CondorcetWinners", "pref_voting": "condorcet",
    },
    "Copeland": {
        "distagg": "copeland", "pyflagr": "CopelandWinners", "corankco": "CopelandMethod", "pref_voting": "copeland",
    },
    "Markov chains MC1-MC4": {"distagg": "mc1, mc2, mc3, mc4", "pyflagr": "MC1 .. MC4"},
    "Kemeny": {
        "distagg": "kemeny", "pyflagr": "KemenyOptimal", "corankco": "BioConsert", "pref_voting": "kemeny_young",
    },
    "Bradley-Terry": {
        "distagg": "bradley_terry", "choix": "ilsr_pairwise, ...", "evalica": "bradley_terry",
        "arena-rank": "BradleyTerry", "openskill": "BradleyTerryFull, BradleyTerryPart", "crowd-kit": "BradleyTerry",
    },
    "  ties, weights": {
        "distagg": "ties, pair weights", "evalica": "ties, weights", "arena-rank": "half a win; weights",
        "openskill": "ties, weights",
    },
    "  standard errors, intervals": {
        "distagg": "errors=standard, bootstrap", "evalica": "bootstrap", "arena-rank": "sandwich, bootstrap",
        "openskill": "sigma",
    },
    "Thurstone": {
        "distagg": "thurstone", "choix": "ep_pairwise", "openskill": "ThurstoneMostellerFull, ThurstoneMostellerPart",
    },
    "Plackett-Luce": {
        "distagg": "plackett_luce", "choix": "ilsr_rankings, mm_rankings", "openskill": "PlackettLuce",
    },
    "Mallows, from pairs too; cranking": {"distagg": "mallows, partial_mallows, cranking"},
    "SVP, coset permutations": {"distagg": "svp, cps"},
    "Multinomial Preference Model, adherence, variance": {"distagg": "mpm, theta_mpm, theta_sup_mpm, mixture_mpm"},
    "CRF on an expected metric": {"distagg": "crf"},
    "LambdaRank on SVD or CP features of lists": {"distagg": "lambdarank"},
    "stochastic rank aggregation": {"distagg": "stagg, stagg_bc, stagg_rrf"},
    "weights of experts learned from labels": {"distagg": "bestinput, sup_mc"},
    "  and from unlabelled items": {"distagg": "ssra"},
    "a stack of models, weighed on held-out queries": {"distagg": "blend"},
    "boosted trees": {
        "distagg": "lambdamart (by LightGBM)", "PyTerrier": "ltr (by LightGBM, ...)",
        "LightGBM": "lambdarank, rank_xendcg",
    },
    "completion of ratings (PMF, neighbours)": {"distagg": "--complete"},
    "metrics and paired tests": {
        "distagg": "evaluate, compare", "ranx": "evaluate, compare", "PyTerrier": "Experiment (by ir-measures)",
        "pyflagr": "evaluation",
    },
    "  recall, hit rate, F1, R-precision, bpref, gains": {
        "distagg": "recall, success, f1, rprec, bpref, ndcg(exp)",
        "ranx": "recall, hit_rate, f1, r-precision, bpref, ndcg_burges", "PyTerrier": "R, Success, SetF, Rprec, Bpref",
    },
    "  ERR, infAP, share of judged items": {"distagg": "err, infap, judged", "PyTerrier": "ERR, infAP, Judged"},
    "  rank-biased overlap of two rankings": {"distagg": "rbo"},
    "one call on pandas frames": {
        "distagg": "rank", "ranx": "Run.from_df", "PyTerrier": "every stage", "evalica": "lists of names",
        "arena-rank": "PairDataset.from_pandas", "crowd-kit": "fit_predict",
    },
    "  on polars, Arrow, DuckDB, dictionaries of runs": {"distagg": "rank", "ranx": "Run(dictionary)"},
    "  on Dask frames": {"distagg": "rank, fit, datasets; on the workers", "LightGBM": "DaskLGBMRanker"},
    "more data than memory": {"distagg": "chunks"},
    "a cluster": {"distagg": "--workers, --scheduler", "PyTerrier": "Ray", "LightGBM": "Dask"},
    "resumes where it was killed, same bytes": {"distagg": "run, resume"},
}  # fmt: skip


def capability_rows() -> list[list[str]]:
    return [[name, *(cells.get(who, "-") for who in ("distagg", *PEERS))] for name, cells in METHODS.items()]
