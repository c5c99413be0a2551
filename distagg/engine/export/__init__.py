"""Export a tuned fusion as the query of a search engine: Elasticsearch, OpenSearch, Qdrant, Vespa, or plain JSON.

Notes list what the engine computes differently from the model. A model that the engine cannot compute at all is an
error. The query of each expert is a placeholder in double braces, which the user fills in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distagg.engine.export.plain import WINDOW, Export, Fusion, fusion_of, plain_json
from distagg.engine.export.products import elasticsearch, opensearch, qdrant, vespa
from distagg.errors import unknown
from distagg.models import Model


@dataclass(frozen=True, slots=True)
class Product:
    """A search engine: its name, the function that writes its query, and the norms that it offers (by our names)."""

    title: str
    write: Callable[[Fusion], Export]
    norms: tuple[str, ...]


EVERY_NORM = ("discount", "rank", "minmax", "max", "sum", "l2", "zmuv", "dbsf", "borda")
PRODUCTS: dict[str, Product] = {
    "elasticsearch": Product("Elasticsearch 9.2", elasticsearch, ("minmax", "l2")),
    "opensearch": Product("OpenSearch 3.9", opensearch, ("minmax", "l2", "zmuv")),
    "qdrant": Product("Qdrant 1.19", qdrant, ("dbsf",)),
    "vespa": Product("Vespa 8", vespa, ("minmax",)),
    "json": Product("JSON", plain_json, EVERY_NORM),
}


def product_named(name: str) -> Product:
    """The product of this name; a UsageError lists the known ones."""
    if name.lower() not in PRODUCTS:
        raise unknown("product", name, PRODUCTS)
    return PRODUCTS[name.lower()]


def export(model: Model, product: str, experts: Sequence[str], *, window: int = WINDOW) -> Export:
    """Write the query with which a search engine ranks as the model does.

    Parameters
    ----------
    model
        ``rrf``, ``combsum`` or ``combmnz``, with its settings.
    product
        ``elasticsearch``, ``opensearch``, ``qdrant``, ``vespa`` or ``json``.
    experts
        Names of the lists to fuse, in the order of the query's parts.
    window
        Number of items to take from each list if the model takes whole lists (``depth=0``): engines need a limit.

    Returns
    -------
    Export
        ``value`` (a JSON value) and ``notes`` (what the engine does differently from the model).

    Examples
    --------
    >>> from distagg.models import model_named
    >>> value, notes = export(model_named("rrf", {"c": 20}), "qdrant", ["bm25", "dense"])
    >>> value["query"]
    {'rrf': {'k': 21}}
    """
    return product_named(product).write(fusion_of(model, tuple(experts), window))


__all__ = ["PRODUCTS", "Export", "Product", "export", "product_named"]
