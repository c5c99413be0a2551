"""Examples in ``--help``, and the help texts of arguments that many commands share."""

from __future__ import annotations

import argparse
from typing import Any

SHARED_HELP = {
    "DATASET": "a dataset written by 'distagg import'",
    "MODEL": "a model's name; 'distagg models' lists them",
    "MODELDIR": "the directory to create, for 'distagg rank', 'experts' and 'explain'",
    "RANKINGS": "the directory to create, or a file: .csv, .parquet, .run (TREC)",
    "JOB.toml": "a job file; jobs/ has examples",
}
EXAMPLES = {
    "demo": ["distagg demo", "distagg demo --all", "distagg demo --queries 100 -o out/small"],
    "import": ["distagg import trec bm25.run dense.run --qrels qrels.txt -o runs", "distagg import trec --help"],
    "import letor": ["distagg import letor A1.txt A2.txt A3.txt A4.txt A5.txt -o mq"],
    "import trec": ["distagg import trec bm25.run dense.run.gz --qrels qrels.txt -o runs"],
    "import ratings": ["distagg import ratings u.data --users u.user --items u.item --scale 1,5 -o movies"],
    "import rankings": ["distagg import rankings lists.parquet -o lists"],
    "import pairs": ["distagg import pairs battles.csv -o battles"],
    "expand": ["distagg expand mq -o larger --experts 10"],
    "info": ["distagg info mq", "distagg info mq --report mq.html"],
    "models": ["distagg models", "distagg models crf"],
    "fit": [
        "distagg fit crf mq -o model",
        "distagg fit rrf mq -p c=10,30,60 --folds letor5 --goal ndcg@5 -o chosen",
    ],
    "rank": [
        "distagg rank rrf mq -o rankings",
        "distagg rank model mq -o tonight.run",
        "distagg rank mpm movies -o top.csv --support --titles --min-support 10 --report top.html",
        "distagg rank bradley_terry battles -o board.csv -p errors=standard",
    ],
    "evaluate": [
        "distagg evaluate rankings mq -m ndcg@5 -m map",
        "distagg evaluate dense.run runs -m ndcg@10",
    ],
    "compare": [
        "distagg compare mq --models rrf,borda,crf --folds letor5 -m ndcg@5 --report report.html",
        "distagg compare mq --models rrf,crf --folds 5 -p rrf.c=5,20,60 --baseline rrf",
    ],
    "experts": ["distagg experts model --data mq --report experts.html"],
    "explain": ["distagg explain model mq --query 10002", "distagg explain rrf mq --query 10002"],
    "features": ["distagg features mq -o features --rank 2"],
    "run": ["distagg run jobs/nightly.toml", "distagg run jobs/nightly.toml steps.model.model=rrf --workers 2"],
    "plan": ["distagg plan jobs/nightly.toml"],
    "resume": ["distagg resume runs/nightly/latest"],
    "status": ["distagg status runs/nightly/latest"],
    "report": ["distagg report runs/nightly/latest"],
    "doctor": ["distagg doctor"],
    "warm": ["distagg warm", "distagg warm crf kemeny"],
    "certificates": ["distagg certificates certificates --hosts node-1.example,node-2.example"],
}
SAMPLE_LINES = {
    "import letor": "2 qid:10032 1:3 2:NULL 3:12 #docid = GX030-77-6315042",
    "import trec": "q1 Q0 doc7 1 14.2 bm25",
    "import ratings": "196 242 3 881250949          (user, item, rating, time; tab-separated)",
    "import rankings": "query,expert,item,rank       (a header, then rows)\ncats,google,a,1",
    "import pairs": "model_a,model_b,winner       (or winner,loser,expert,weight,tie)\nada,bert,model_a",
}


def teach(commands: Any, above: str = "") -> None:
    """Add examples to the help of each command, and help texts to arguments that have none."""
    for name, parser in commands.choices.items():
        sample = SAMPLE_LINES.get(above + name)
        lines = [] if sample is None else ["a file sample like", *(f"  {text}" for text in sample.splitlines())]
        lines += ["examples", *(f"  {text}" for text in EXAMPLES.get(above + name, ()))]
        parser.epilog = "\n".join(lines)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        for action in parser._actions:
            if action.help is None and isinstance(action.metavar, str):
                action.help = SHARED_HELP.get(action.metavar)
