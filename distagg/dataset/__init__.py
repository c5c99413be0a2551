"""Datasets: sorted Parquet on disk, flat arrays in memory."""

from distagg.dataset.chunk import Chunk
from distagg.dataset.manifest import Manifest
from distagg.dataset.reader import ChunkRef, Dataset
from distagg.dataset.view import expanded
from distagg.dataset.writer import write_dataset

__all__ = ["Chunk", "ChunkRef", "Dataset", "Manifest", "expanded", "write_dataset"]
