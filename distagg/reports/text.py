"""Format names and numbers, for HTML and for the terminal.

Names come from input files: control characters are replaced, and widths count display columns, not code points. A
missing number or NaN is printed as ``–``.
"""

from __future__ import annotations

import math
import unicodedata

NOTHING = "–"
ELLIPSIS = "…"
# Control, surrogate and format characters: the last can reverse or hide the text around them.
_UNPRINTABLE = {"Cc", "Cs", "Cf"}
_JOINER = "\u200d"


def printable(text: object) -> str:
    """``text`` with unprintable characters replaced by U+FFFD.

    >>> printable("a\\x1b[1m")
    'a\ufffd[1m'
    """
    return "".join("\ufffd" if _hidden(character) else character for character in str(text))


def columns(text: str) -> int:
    """Columns of a monospaced font that ``text`` takes.

    >>> columns("rrf"), columns("順位"), columns("e\u0301")
    (3, 4, 1)
    """
    return sum(_character_columns(character) for character in text)


def shorten(text: str, limit: int) -> str:
    """``text`` cut to at most ``limit`` columns, with an ellipsis if it was cut.

    >>> shorten("bradley_terry", 8)
    'bradley…'
    """
    if columns(text) <= limit:
        return text
    kept, used = [], 0
    for character in text:
        used += _character_columns(character)
        if used > limit - 1:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def number(value: object) -> float:
    """``value`` as a float; NaN if it is not a number."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]  # numpy scalars have no common static type
    except (TypeError, ValueError):
        return math.nan


def percent(value: object, *, signed: bool = False) -> str:
    """A fraction as the papers print it: percent with two decimals, without the percent sign.

    >>> percent(0.47178), percent(float("nan")), percent(0.012, signed=True)
    ('47.18', '–', '+1.20')
    """
    figure = 100.0 * number(value)
    if not math.isfinite(figure):
        return NOTHING
    written = f"{figure:+.2f}" if signed else f"{figure:.2f}"
    # A rounded zero has no sign.
    return "0.00" if written in ("-0.00", "+0.00") else written.replace("-", "−")


def signed(value: object, digits: int = 2) -> str:
    """A number with its sign; a rounded zero has none.

    >>> signed(0.318), signed(-2.0), signed(-0.0001), signed(0.0004, 3)
    ('+0.32', '−2.00', '0.00', '0.000')
    """
    figure = number(value)
    if not math.isfinite(figure):
        return NOTHING
    written = f"{figure:+.{digits}f}"
    return written.replace("-", "−") if written.strip("+-0.") else written[1:]


def share(value: object) -> str:
    """A fraction as a percentage with one decimal and its sign.

    >>> share(0.65)
    '65.0%'
    """
    figure = 100.0 * number(value)
    return f"{figure:.1f}%" if math.isfinite(figure) else NOTHING


def count(value: object) -> str:
    """A count with thousands separators; fractions keep their decimals.

    >>> count(15211), count(2.5)
    ('15,211', '2.5')
    """
    figure = number(value)
    if not math.isfinite(figure):
        return NOTHING
    return f"{figure:,.0f}" if figure == round(figure) else f"{figure:,.4g}"


def p_value(value: object) -> str:
    """A p-value with three decimals.

    >>> p_value(0.0412), p_value(1e-9)
    ('0.041', '<0.001')
    """
    figure = number(value)
    if not math.isfinite(figure):
        return NOTHING
    return "<0.001" if figure < 0.001 else f"{figure:.3f}"


def seconds(value: object) -> str:
    """A duration that can be compared at a glance.

    >>> seconds(0.0123), seconds(3.21), seconds(754.2)
    ('0.012 s', '3.2 s', '754 s')
    """
    figure = number(value)
    if not math.isfinite(figure):
        return NOTHING
    decimals = 3 if figure < 1 else 1 if figure < 100 else 0
    return f"{figure:,.{decimals}f} s"


def size(value: object) -> str:
    """An amount of bytes.

    >>> size(9_018_625_000_000), size(4_000_000_000), size(312_000)
    ('9.02 TB', '4.00 GB', '0.31 MB')
    """
    figure = number(value)
    unit, factor = ("MB", 1e6) if figure < 1e8 else ("GB", 1e9) if figure < 1e12 else ("TB", 1e12)
    return f"{figure / factor:,.2f} {unit}"


def plural(amount: int, noun: str) -> str:
    """A number with its noun, in the singular or plural.

    >>> plural(1, "fold"), plural(1692, "query")
    ('1 fold', '1,692 queries')
    """
    if amount == 1:
        return f"1 {noun}"
    return f"{amount:,} {noun[:-1]}ies" if noun.endswith("y") else f"{amount:,} {noun}s"


def _hidden(character: str) -> bool:
    # The joiner stays: emoji and Indic names are spelt with it.
    return unicodedata.category(character) in _UNPRINTABLE and character != _JOINER


def _character_columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
