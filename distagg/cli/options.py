"""Options that several commands share, and the values that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from distagg.cli.commands import Argument, Gathered, flag, option, say
from distagg.errors import UsageError

if TYPE_CHECKING:
    from distagg.dataset import Dataset
    from distagg.engine.fitting.fit import Goal, Through
    from distagg.engine.runner import Runner


def settings_of(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> dict[str, str]:
    """The settings ``key=value`` by key."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{param.opts[0]} {word}: found no '=', expected key=value")
        settings[key] = value
    return settings


@dataclass(frozen=True)
class Data:
    """A dataset as the arguments name it."""

    dataset: str
    expand_experts: int = 1
    expand_items: int = 1

    def open(self, path: str | None = None) -> Dataset:
        """Open the dataset, or one at another path, with the expansion that the options ask for."""
        from distagg.dataset import Dataset, expanded

        dataset = Dataset.open(path or self.dataset)
        times = {"experts": self.expand_experts, "items": self.expand_items}
        return expanded(dataset, **times) if times != {"experts": 1, "items": 1} else dataset


@dataclass(frozen=True)
class Completion:
    """How users' missing ratings are completed, if at all."""

    complete: str | None
    completion: dict[str, str]

    def fit(self, dataset: Dataset, seed: int | None, runner: Runner) -> Through | None:
        """Fit the completion that the options ask for, if any."""
        from distagg.engine.complete import fit_completion
        from distagg.models import completion_named

        if not self.complete:
            if self.completion:
                raise UsageError("-c needs --complete")
            return None
        return fit_completion(completion_named(self.complete, self.completion, seed=seed or 0), dataset, runner=runner)


def make_goal(goal: str, protocol: str | None) -> Goal:
    from distagg.engine.fitting.fit import Goal

    return Goal(goal, protocol)


def matching(dataset: Dataset, condition: str | None) -> Dataset:
    """Select the experts that match a condition, and print their number."""
    if condition is None:
        return dataset
    dataset = dataset.select(audience=condition)
    say(f"{dataset.audience_size:,} of {dataset.manifest.experts:,} experts: {condition}")
    return dataset


def settings_option(form: str, help: str) -> click.Option:
    return option("-p", "settings", many=True, metavar=form, callback=settings_of, help=help)


def search_options(form: str) -> tuple[click.Option, ...]:
    return (
        settings_option(
            form,
            "set a model's parameter; a,b,c tries each value, low..high draws from a range; the settings that score "
            "best on validation queries are used",
        ),
        option("--tries", type=int, metavar="N", help="try N random combinations instead of all"),
    )


def completion_options(help: str) -> Gathered:
    return Gathered(
        "completion",
        Completion,
        (
            option("--complete", metavar="pmf|neighbours|RATING", help=help),
            option("-c", "completion", many=True, metavar="key=value", callback=settings_of, help="set its parameter"),
        ),
    )


DATASET = Argument("dataset", metavar="DATASET", help="a dataset written by 'distagg import'")
DATA = Gathered(
    "data",
    Data,
    (
        DATASET,
        option("--expand-experts", type=int, default=1, metavar="T", help="replicate each expert T times (default 1)"),
        option("--expand-items", type=int, default=1, metavar="T", help="replicate each item T times (default 1)"),
    ),
)
MODEL_OR_FITTED = Argument("model", metavar="MODEL|MODELDIR", help="a model's name, or a model fitted by 'distagg fit'")
PROTOCOL = option(
    "--protocol",
    type=click.Choice(("letor", "trec")),
    help="compute metrics as the LETOR scripts or as trec_eval do (default: letor for LETOR files, else trec)",
)
GOAL = Gathered(
    "goal",
    make_goal,
    (
        option(
            "--goal",
            default="map",
            metavar="METRIC",
            help="metric that fitting optimises on validation data (default map)",
        ),
        PROTOCOL,
    ),
)
METRICS = option(
    "-m",
    "metrics",
    many=True,
    metavar="METRIC",
    help="ndcg@10, ndcg(exp)@10, p@3, recall@100, success@1, map, mrr, rprec, bpref, infap, f1@5, dcg@10, err, "
    "rbp(0.95), judged@10, tau, or a name of trec_eval or ir-measures; repeat for more",
)
RESULT = option(
    "-o",
    "--output",
    metavar="FILE.json",
    help="write the output of --json to a new file; compare adds every query's values",
)
REPORT = option("--report", metavar="FILE.html", help="write a self-contained page")
WHERE = option("--where", metavar="CONDITION", help="use only experts that match: \"age < 25 and gender = 'F'\"")
ALLOW_UNSEEN = flag(
    "--allow-unseen",
    help="continue even if more than half of the entries come from experts that MODELDIR has not seen",
)
