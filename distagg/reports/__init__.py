"""Reports that need nothing but a browser, and tables for the terminal; loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distagg.reports.compare_page import compare_report
    from distagg.reports.dataset_page import consensus_report, dataset_report
    from distagg.reports.html import write_report
    from distagg.reports.terminal import comparison_table, render_table

_HOME = {
    "compare_report": "compare_page",
    "consensus_report": "dataset_page",
    "dataset_report": "dataset_page",
    "write_report": "html",
    "comparison_table": "terminal",
    "render_table": "terminal",
}

__all__ = ["compare_report", "comparison_table", "consensus_report", "dataset_report", "render_table", "write_report"]


def __getattr__(name: str) -> Any:
    """Load on first use: a table for the terminal needs no charts."""
    if name in _HOME:
        return getattr(import_module(f"distagg.reports.{_HOME[name]}"), name)
    raise AttributeError(f"module 'distagg.reports' has no attribute {name!r}")
