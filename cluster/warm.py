"""A Dask preload: workers compile before their first task, or find compiled code of another worker of their machine.

    dask worker tls://HOST:8786 --preload cluster/warm.py ...

DISTAGG_WARM names the models, by commas; without it only those of the first job are compiled, when it comes.
"""

from __future__ import annotations

import os


def dask_setup(worker: object) -> None:
    from distagg.pipeline.warm import warm

    names = [name for name in os.environ.get("DISTAGG_WARM", "").split(",") if name]
    if names:
        warm(names)
