"""The file system of an object store's URL, and the translation of its errors.

Endpoint and region come from the URL (``?endpoint_override=HOST:PORT&scheme=http&region=R``) or the usual variables
(AWS_ENDPOINT_URL, AWS_REGION), credentials from variables or profile. A request has three attempts, each
with a timeout of five seconds to connect and ten seconds without data.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from distagg.errors import DistaggError, InfrastructureError, InputError, UsageError

CONNECT_SECONDS = 5.0
SILENT_SECONDS = 10.0  # timeout without data
TRIES = 3
_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|InvalidAccessKeyId|INVALID_CLIENT_TOKEN|SIGNATURE_DOES_NOT_MATCH|UNAUTHORIZED|"
    r"SignatureDoesNotMatch|EXPIRED|ExpiredToken|FORBIDDEN|HTTP status 40[13]|credentials|NOT_AUTHORIZED",
    re.IGNORECASE,
)
_NETWORK = re.compile(r"NETWORK_CONNECTION|curlCode|REQUEST_TIMEOUT|timed? ?out|[Cc]onnect")


def endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


@functools.lru_cache(maxsize=16)
def filesystem_of(root: str, query: str, given: str) -> tuple[Any, str]:
    """The file system of a root, and the root's name in it."""
    from pyarrow import fs

    split = urlsplit(root)
    if split.scheme != "s3":
        try:
            filesystem, top = fs.FileSystem.from_uri(f"{root}/" + (f"?{query}" if query else ""))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, ImportError) as error:
            raise UsageError(
                f"{root}: found '{split.scheme}://' ({str(error).splitlines()[0]}), expected a path, s3://, file:// or "
                "another scheme that pyarrow knows"
            ) from error
        return filesystem, top.rstrip("/")
    options = dict(parse_qsl(query))
    for name in options:
        if name not in ("endpoint_override", "scheme", "region"):
            raise UsageError(f"{root}: unknown option '{name}'; known: endpoint_override, scheme, region")
    server = urlsplit(given if "://" in given else f"//{given}")
    override = options.get("endpoint_override") or server.netloc or None
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and override is not None:
        region = "us-east-1"  # other servers ignore it; without it the SDK would contact Amazon's metadata servers
    filesystem = fs.S3FileSystem(
        endpoint_override=override,
        scheme=options.get("scheme") or (server.scheme if "endpoint_override" not in options else "") or "https",
        region=region if region is not None else fs.resolve_s3_region(split.netloc),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        background_writes=False,  # otherwise data for a slow network would pile up in memory
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
    )
    return filesystem, split.netloc


def meaning(url: str, error: Exception) -> DistaggError | None:
    """The distagg error for a common error of a store, else None."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if re.search(r"NO_SUCH_BUCKET|NoSuchBucket", text):
        return InputError(
            url, found="no such bucket", expected="one that exists",
            remedy="create it first, or correct the URL or the endpoint (AWS_ENDPOINT_URL)",
        )  # fmt: skip
    if isinstance(error, FileNotFoundError):
        return InputError(url, found="nothing there", expected="an object")
    if _DENIED.search(text):
        return InfrastructureError(
            f"{url}: access denied; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE) and their "
            f"permissions in this bucket, then run again ({text})"
        )
    if _NETWORK.search(text):
        server = dict(parse_qsl(urlsplit(url).query)).get("endpoint_override") or endpoint() or "the store"
        return InfrastructureError(
            f"{url}: no answer from {server}; check the network and AWS_ENDPOINT_URL (or endpoint_override in the "
            f"URL), then run again ({text})"
        )
    return None
