"""Reports that need nothing but a browser, and tables for the terminal."""

from distagg.reports.compare_page import compare_report
from distagg.reports.dataset_page import consensus_report, dataset_report
from distagg.reports.html import write_report
from distagg.reports.terminal import comparison_table, render_table

__all__ = ["compare_report", "comparison_table", "consensus_report", "dataset_report", "render_table", "write_report"]
