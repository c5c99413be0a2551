"""Jobs: steps of one validated specification, run in a directory that survives its driver."""

from distagg.jobs.drive import drive
from distagg.jobs.spec import Job, Step, read_job

__all__ = ["Job", "Step", "drive", "read_job"]
