"""Small made-up inputs for the guides, the same every time."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

GRADES = [2, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]  # of a query's items


def metasearch(folder: Path) -> None:
    """Four engines, forty queries, judgements. ``links`` knows little, ``spam`` puts the bad first."""
    draw = random.Random(1)
    noise = {"bm25": 0.9, "dense": 0.8, "links": 3.0, "spam": 1.0}
    lines: dict[str, list[str]] = {engine: [] for engine in noise}
    for query, grades in _queries(draw, 40):
        for engine, listed in _lists(draw, grades, noise).items():
            lines[engine] += [
                f"{query} Q0 {item} {n} {score:.3f} {engine}" for n, (item, score) in enumerate(listed, 1)
            ]
    for engine, rows in lines.items():
        _write(folder / f"{engine}.run", rows)
    judged = [
        f"{query} 0 {item} {grade}"
        for query, grades in _queries(random.Random(1), 40)
        for item, grade in grades.items()
    ]
    _write(folder / "qrels.txt", judged)


def hybrid(folder: Path) -> None:
    """Scores of two retrievers on scales of their own, and clicks on some queries."""
    draw = random.Random(2)
    found, clicks = [], []
    for query, grades in _queries(draw, 60):
        for engine, listed in _lists(draw, grades, {"bm25": 1.1, "dense": 0.7}).items():
            scale = (12.0, 3.0) if engine == "bm25" else (0.6, 0.05)
            found += [(query, engine, item, round(scale[0] + scale[1] * score, 4)) for item, score in listed]
        clicks += [(query, item, int(grade == 2 and draw.random() < 0.8)) for item, grade in grades.items()]
    _table(folder / "retrieved.csv", ("query", "expert", "item", "score"), found)
    _table(folder / "clicks.csv", ("query", "item", "label"), clicks)
    labels = {(query, item): label for query, item, label in clicks}
    joined = [(query, engine, item, score, labels[query, item]) for query, engine, item, score in found]
    _table(folder / "lists.csv", ("query", "expert", "item", "score", "label"), joined)


def ratings(folder: Path) -> None:
    """MovieLens' three files: two hundred users, thirty movies, of which later ones are rated by fewer."""
    draw = random.Random(3)
    good = [draw.gauss(3.2, 0.7) for _ in range(30)]
    rows = []
    for user in range(1, 201):
        for movie in range(30):
            if draw.random() < 0.7 / (1 + movie / 6):
                taste = 0.6 if movie % 3 == 0 and user % 2 else 0.0  # the young like every third movie better
                rows.append(f"{user}\t{movie + 1}\t{min(5, max(1, round(draw.gauss(good[movie] + taste, 0.9))))}\t0")
    _write(folder / "u.data", rows)
    _write(folder / "u.user", [f"{u}|{21 if u % 2 else 48}|{'FM'[u // 2 % 2]}|other|00000" for u in range(1, 201)])
    _write(folder / "u.item", [f"{m}|Movie {m} (1999)|01-Jan-1999||url|{'|'.join('0' * 19)}" for m in range(1, 31)])


def pairs(folder: Path) -> None:
    """Battles of seven language models, one of them new and unbeaten; and lists of favourites by a crowd."""
    draw = random.Random(4)
    skill = {"ada": 1.2, "bert": 0.8, "cleo": 0.5, "dora": 0.0, "emil": -0.5, "fred": -1.0}
    battles = []
    for n in range(600):  # a hundred each month
        a, b = draw.sample(list(skill), 2)
        gap = skill[a] - skill[b] + draw.gauss(0, 1.4)
        outcome = "tie" if abs(gap) < 0.4 else "model_a" if gap > 0 else "model_b"
        battles.append((a, b, outcome, f"2026-{n // 100 + 1:02}-{n % 28 + 1:02}"))
    battles += [("newcomer", "fred", "model_a", "2026-06-29"), ("dora", "newcomer", "model_b", "2026-06-30")]
    _table(folder / "battles.csv", ("model_a", "model_b", "winner", "time"), battles)
    lists = []
    for person in range(80):
        liked = sorted(draw.sample(list(skill), 4), key=lambda name: draw.gauss(-skill[name], 0.8))
        lists += [(f"person-{person}", name, place) for place, name in enumerate(liked, 1)]
    _table(folder / "favourites.csv", ("expert", "item", "rank"), lists)


def crowd(folder: Path) -> None:
    """Votes on ten pictures: readers, clickers, people who took the question the wrong way round, and two newcomers."""
    draw = random.Random(6)
    pictures = [f"picture-{n}" for n in range(1, 11)]  # the first is the best
    agrees = {f"reader-{n}": 0.92 for n in range(1, 7)} | {f"clicker-{n}": 0.5 for n in range(1, 5)}
    agrees |= {f"reverser-{n}": 0.06 for n in range(1, 4)} | {"newcomer-1": 0.92, "newcomer-2": 0.92}
    votes = []
    for person, chance in agrees.items():
        for _ in range(3 if person.startswith("newcomer") else 70):
            a, b = sorted(draw.sample(range(10), 2))
            follows = draw.random() < 1 / (1 + math.exp(-0.45 * (b - a)))
            agreed = draw.random() < chance
            winner, loser = (a, b) if follows == agreed else (b, a)
            votes.append((person, pictures[winner], pictures[loser]))
    draw.shuffle(votes)
    _table(folder / "votes.csv", ("annotator", "winner", "loser"), votes)


def cluster(folder: Path) -> None:
    """Five LETOR parts: label qid:Q expert:position ... #docid = ID."""
    draw = random.Random(5)
    noise = {"1": 0.8, "2": 1.0, "3": 3.0, "4": 2.0}
    for part in range(1, 6):
        lines = []
        for query, grades in _queries(draw, 30):
            places = {
                engine: {item: n for n, (item, _) in enumerate(listed, 1)}
                for engine, listed in _lists(draw, grades, noise).items()
            }
            for item, grade in grades.items():
                said = " ".join(f"{engine}:{places[engine].get(item, 'NULL')}" for engine in noise)
                lines.append(f"{grade} qid:{part}{query[1:]} {said} #docid = {item}")
        _write(folder / f"A{part}.txt", lines)


def _queries(draw: random.Random, count: int) -> Iterable[tuple[str, dict[str, int]]]:
    """Queries with the true grades of their items."""
    shuffled = random.Random(draw.random())
    for n in range(1, count + 1):
        grades = GRADES[:]
        shuffled.shuffle(grades)
        yield f"q{n:02}", {f"doc{n:02}-{place:02}": grade for place, grade in enumerate(grades, 1)}


def _lists(draw: random.Random, grades: dict[str, int], noise: dict[str, float]) -> dict[str, list[tuple[str, float]]]:
    """What each engine finds: eight items, best first, with scores."""
    found = {}
    for engine, spread in noise.items():
        sign = -1 if engine == "spam" else 1
        scored = [(item, sign * grade + draw.gauss(0, spread)) for item, grade in grades.items()]
        found[engine] = sorted(scored, key=lambda one: -one[1])[:8]
    return found


def _write(file: Path, lines: Sequence[str]) -> None:
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _table(file: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *rows])
