"""A server that speaks S3, and an empty place in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import BUCKET, WITHOUT_PROFILE, command, serving


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    program = command()
    if program is None:
        pytest.skip("no S3 server: 'make test' installs moto into .venv-s3, or set DISTAGG_S3_SERVER to moto_server")
    from pyarrow.fs import S3FileSystem

    with serving(program) as address, pytest.MonkeyPatch.context() as patch:
        for name, value in {**WITHOUT_PROFILE, "AWS_ENDPOINT_URL": address}.items():
            patch.setenv(name, value)
        maker = S3FileSystem(
            endpoint_override=address.removeprefix("http://"),
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        maker.create_dir(BUCKET.removeprefix("s3://"))
        yield address


@pytest.fixture
def store(address: str, tmp_path: Path) -> str:
    """An empty place for one test."""
    return f"{BUCKET}/{tmp_path.name}"
