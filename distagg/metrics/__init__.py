"""Effectiveness metrics, the evaluation of rankings, and the significance of differences."""

from distagg.metrics.evaluate import Evaluation, evaluate_rankings, highest_label, index_rankings, ranking_scores
from distagg.metrics.metric import Metric, Protocol, check_protocol, parse_metric, parse_metrics
from distagg.metrics.score import mean_over_queries, score_chunk
from distagg.metrics.significance import Comparison, PairedTest, compare_all, paired_tests

__all__ = [
    "Comparison",
    "Evaluation",
    "Metric",
    "PairedTest",
    "Protocol",
    "check_protocol",
    "compare_all",
    "evaluate_rankings",
    "highest_label",
    "index_rankings",
    "mean_over_queries",
    "paired_tests",
    "parse_metric",
    "parse_metrics",
    "ranking_scores",
    "score_chunk",
]
