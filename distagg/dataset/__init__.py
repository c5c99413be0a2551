"""Datasets: sorted Parquet on disk, flat arrays in memory."""

from distagg.dataset.build.writer import write_dataset
from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.dataset import Dataset
from distagg.dataset.expand import expanded
from distagg.dataset.manifest import Manifest

__all__ = ["Chunk", "ChunkRef", "Dataset", "Manifest", "expanded", "write_dataset"]
