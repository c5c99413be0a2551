"""Method by method, who has it: ours by model name, theirs by the name under which their manuals have it.

What others have and we have not stands first. Taken from the versions in peers.txt.
"""

from __future__ import annotations

PEERS = ("ranx", "pyflagr", "choix", "evalica", "crowd-kit", "corankco", "LightGBM")
HEAD = ["method", "distagg", *PEERS]

METHODS: dict[str, dict[str, str]] = {
    "Elo, PageRank, eigenvectors, Newman": {"evalica": "elo, pagerank, eigen, newman"},
    "rank centrality": {"choix": "rank_centrality"},
    "Bradley-Terry with reliabilities of workers": {"crowd-kit": "NoisyBradleyTerry"},
    "KwikSort, exact Kemeny by integer programming": {"corankco": "KwikSort, ExactAlgorithm"},
    "interpolated precision at recall levels": {"ranx": "interpolated_precision_at_recall"},
    "reciprocal rank fusion": {"distagg": "rrf", "ranx": "rrf"},
    "CombSUM, CombMNZ": {"distagg": "combsum, combmnz", "ranx": "sum, mnz", "pyflagr": "CombSUM, CombMNZ"},
    "  other rules on scores": {
        "distagg": "combgmnz, combanz, combmax, combmin, combmed", "ranx": "gmnz, anz, max, min, med",
    },
    "  norms of scores": {
        "distagg": "rank, borda, minmax, max, sum, l2, zmuv, dbsf; bounds",
        "ranx": "rank, borda, min-max, max, sum, zmuv", "pyflagr": "rank, borda, score, z-score",
    },
    "weights of experts, depth of lists": {
        "distagg": "weights, depth; learned by tune", "ranx": "wsum, wmnz, ...; by grid search",
    },
    "inverse square ranks, rank-biased centroids": {"distagg": "isr, log_isr, rbc", "ranx": "isr, log_isr, rbc"},
    "probabilistic fusion (ProbFuse, SegFuse, SlideFuse, BayesFuse, MAPFuse, PosFuse)": {
        "distagg": "probfuse, ...", "ranx": "probfuse, ...",
    },
    "robust rank aggregation, outranking, DIBRA": {
        "distagg": "rra, outranking, dibra", "pyflagr": "RobustRA, OutrankingApproach, DIBRA",
    },
    "Borda": {"distagg": "borda", "ranx": "bordafuse", "pyflagr": "BordaCount", "corankco": "BordaCount"},
    "median rank": {"distagg": "median", "ranx": "med", "corankco": "MedRank"},
    "Condorcet": {"distagg": "condorcet", "ranx": "condorcet", "pyflagr": "CondorcetWinners"},
    "Copeland": {"distagg": "copeland", "pyflagr": "CopelandWinners", "corankco": "CopelandMethod"},
    "Markov chains MC1-MC4": {"distagg": "mc1 .. mc4", "pyflagr": "MC1 .. MC4"},
    "Kemeny, by search": {"distagg": "kemeny", "pyflagr": "KemenyOptimal", "corankco": "BioConsert"},
    "Bradley-Terry": {
        "distagg": "bradley_terry", "choix": "ilsr_pairwise, ...", "evalica": "bradley_terry",
        "crowd-kit": "BradleyTerry",
    },
    "  ties, weights": {"distagg": "ties, pair weights", "evalica": "ties, weights"},
    "  standard errors, intervals": {"distagg": "errors=standard, bootstrap", "evalica": "bootstrap"},
    "Thurstone": {"distagg": "thurstone", "choix": "ep_pairwise"},
    "Plackett-Luce": {"distagg": "plackett_luce", "choix": "ilsr_rankings, mm_rankings"},
    "Mallows, cranking": {"distagg": "mallows, cranking"},
    "SVP, coset permutations": {"distagg": "svp, cps"},
    "Multinomial Preference Model, adherence, variance": {"distagg": "mpm, theta_mpm, theta_sup_mpm"},
    "CRF on an expected metric": {"distagg": "crf"},
    "LambdaRank on SVD or CP features of lists": {"distagg": "lambdarank"},
    "stochastic rank aggregation": {"distagg": "stagg, stagg_bc, stagg_rrf"},
    "boosted trees": {"distagg": "lambdamart (by LightGBM)", "LightGBM": "lambdarank, rank_xendcg"},
    "completion of ratings (PMF, neighbours)": {"distagg": "--complete"},
    "metrics and paired tests": {"distagg": "evaluate, compare", "ranx": "evaluate, compare", "pyflagr": "evaluation"},
    "  recall, hit rate, F1, R-precision, bpref, gains": {
        "distagg": "recall, success, f1, rprec, bpref, ndcg(exp)",
        "ranx": "recall, hit_rate, f1, r-precision, bpref, ndcg_burges",
    },
    "  ERR, infAP, share of judged items": {"distagg": "err, infap, judged"},
    "  rank-biased overlap of two rankings": {"distagg": "rbo"},
    "more data than memory": {"distagg": "chunks"},
    "a cluster": {"distagg": "--workers, --scheduler", "LightGBM": "Dask"},
    "resumes where it was killed, same bytes": {"distagg": "run, resume"},
}  # fmt: skip


def capability_rows() -> list[list[str]]:
    return [[name, *(cells.get(who, "-") for who in ("distagg", *PEERS))] for name, cells in METHODS.items()]
