"""Jobs: steps of one validated specification, run in a directory that survives its driver."""

from distagg.pipeline.run import drive
from distagg.pipeline.spec import Job, Step, read_job

__all__ = ["Job", "Step", "drive", "read_job"]
