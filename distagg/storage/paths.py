"""The location of data: a path on this machine, or a URL of an object store (``s3://bucket/prefix``).

A local place is a plain ``pathlib.Path``. A ``Store`` has the few methods of ``Path`` that datasets, rankings and
models need, on top of pyarrow's file systems. A store has no rename, and a failed write may leave a truncated object.
Files are therefore written under unique names and become visible by one small write (``atomic.py``).

The file system is pyarrow's (s3, gs, abfs) or fsspec's (https and others). URLs never contain credentials: user names
and passwords in them are refused, and of the query after ``?`` only harmless options are ever shown, because that of a
signed https address is a credential.

Endpoint and region come from the URL (``?endpoint_override=HOST:PORT&scheme=http&region=R``) or the usual variables
(AWS_ENDPOINT_URL, AWS_REGION), credentials from variables or profile. A request has three attempts, each
with a timeout of five seconds to connect and ten seconds without data.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pyarrow as pa

from distagg.errors import DistaggError, InfrastructureError, InputError, UsageError, hidden

_URL = re.compile(r"([a-zA-Z][\w+.-]*)://")
HTTP = ("http", "https")
SHOWN_OPTIONS = {"endpoint_override", "scheme", "region"}  # of URLs; the values of others may be secret
CONNECT_SECONDS = 5.0
SILENT_SECONDS = 10.0  # timeout without data
TRIES = 3
_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|InvalidAccessKeyId|INVALID_CLIENT_TOKEN|SIGNATURE_DOES_NOT_MATCH|UNAUTHORIZED|"
    r"SignatureDoesNotMatch|EXPIRED|ExpiredToken|FORBIDDEN|HTTP status 40[13]|credentials|NOT_AUTHORIZED",
    re.IGNORECASE,
)
_NETWORK = re.compile(r"NETWORK_CONNECTION|curlCode|REQUEST_TIMEOUT|timed? ?out|[Cc]onnect")


@dataclass(frozen=True, slots=True)
class Store:
    """A place in an object store; ``/`` joins paths, ``str`` returns the URL without what may be secret."""

    root: str  # scheme and bucket: s3://bucket
    key: str = ""
    query: str = field(default="", repr=False)

    def __str__(self) -> str:
        shown = self.query if {name for name, _ in parse_qsl(self.query)} <= SHOWN_OPTIONS else "..."
        return f"{self.root}/{self.key}".rstrip("/") + (f"?{shown}" if self.query else "")

    @property
    def secret(self) -> bool:
        """Whether the URL may contain a secret, which ``str`` does not show."""
        return str(self).endswith("?...")

    @property
    def scheme(self) -> str:
        return self.root.partition("://")[0]

    def __truediv__(self, name: str) -> Store:
        return replace(self, key=f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def parent(self) -> Store:
        return replace(self, key=self.key.rpartition("/")[0])

    @property
    def parents(self) -> list[Store]:
        """The folders that hold it, the nearest first."""
        return [
            replace(self, key="" if str(folder) == "." else str(folder)) for folder in PurePosixPath(self.key).parents
        ]

    def with_name(self, name: str) -> Store:
        return self.parent / name

    def resolve(self) -> Store:
        return self

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: folders are only prefixes of names."""

    @property
    def filesystem(self) -> Any:
        with explained(self):
            return filesystem_of(self.root, self.query, endpoint())[0]

    @property
    def inside(self) -> str:
        """The path in the file system."""
        if self.scheme in HTTP:
            return f"{self.root}/{self.key}" + (f"?{self.query}" if self.query else "")
        with explained(self):
            return f"{filesystem_of(self.root, self.query, endpoint())[1]}/{self.key}".rstrip("/")

    def exists(self) -> bool:
        return self._kind() != "NotFound"

    def is_file(self) -> bool:
        return self._kind() == "File"

    def is_dir(self) -> bool:
        return self._kind() == "Directory"

    def _kind(self) -> str:
        with explained(self):
            kind = str(self.filesystem.get_file_info(self.inside).type.name)
            if kind == "NotFound":
                self._check_bucket()
            if kind == "Directory" and self.key and not self.sizes():
                return "NotFound"  # deletion leaves empty folders
            return kind

    def _check_bucket(self) -> None:
        """Raise an error if the bucket, and not only the name in it, does not exist."""
        if self.scheme in HTTP:
            return
        top = Store(self.root, "", self.query).inside
        if top and self.filesystem.get_file_info(top).type.name == "NotFound":
            raise OSError("NO_SUCH_BUCKET")

    def sizes(self) -> dict[str, int]:
        """The size of every object directly inside, by name."""
        from pyarrow.fs import FileSelector

        with explained(self):
            objects = self.filesystem.get_file_info(FileSelector(self.inside, allow_not_found=True))
            if not objects:
                self._check_bucket()
            return {o.base_name: o.size if o.type.name == "File" else 0 for o in objects}

    def tree(self) -> list[Store]:
        """Every object inside, at any depth, by name."""
        from pyarrow.fs import FileSelector

        with explained(self):
            objects = self.filesystem.get_file_info(FileSelector(self.inside, recursive=True, allow_not_found=True))
            names = sorted(o.path for o in objects if o.type.name == "File")
            return [self / name[len(self.inside) :].lstrip("/") for name in names]

    def iterdir(self) -> list[Store]:
        return [self / name for name in sorted(self.sizes())]

    def glob(self, pattern: str) -> list[Store]:
        return [child for child in self.iterdir() if fnmatch(child.name, pattern)]

    def open(self, mode: str = "r", *, encoding: str = "utf-8") -> Any:
        """Open a stream: ``r`` (text), ``rb``, or ``wb`` (visible once it is closed, even after an error)."""
        with explained(self):
            if mode == "wb":
                return self.filesystem.open_output_stream(self.inside, compression=None)
            stream = self.filesystem.open_input_stream(self.inside, compression=None)
            return stream if mode == "rb" else io.TextIOWrapper(stream, encoding=encoding)

    def open_seekable(self) -> Any:
        """Open an object for reading at any place."""
        with explained(self):
            return self.filesystem.open_input_file(self.inside)

    def read_bytes(self) -> bytes:
        with explained(self), self.open("rb") as stream:
            body: bytes = stream.read()
            return body

    def read_text(self, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def write_bytes(self, body: bytes) -> None:
        with explained(self), self.open("wb") as stream:
            stream.write(body)

    def write_text(self, text: str, *, encoding: str = "utf-8") -> None:
        self.write_bytes(text.encode(encoding))

    def copy_to(self, target: Store) -> None:
        """Copy to another name inside the store, all or nothing."""
        with explained(target):
            self.filesystem.copy_file(self.inside, target.inside)

    def unlink(self, *, missing_ok: bool = False) -> None:
        with explained(self):
            try:
                self.filesystem.delete_file(self.inside)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def rmdir(self) -> None:
        """Delete the folder, and everything in it."""
        with explained(self), suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.inside)


Place = Path | Store
P = TypeVar("P", bound=Path | Store)


def place(where: str | Place) -> Place:
    """The place of a path or URL.

    >>> str(place("s3://bucket/a/?region=eu-west-1") / "b"), place("file:///a/b") == Path("/a/b"), place("a").name
    ('s3://bucket/a/b?region=eu-west-1', True, 'a')
    """
    if not isinstance(where, str):
        return where
    url = _URL.match(where)
    if url is None:
        return Path(where)
    try:
        split = urlsplit(where)
    except ValueError as error:  # brackets that enclose no address
        raise UsageError(f"a URL with {url[1]}:// cannot be read ({error}); expected SCHEME://HOST/PATH") from None
    if url[1].lower() == "file":
        if split.netloc not in ("", "localhost"):
            raise UsageError(f"{hidden(where)}: found the host '{split.hostname}', expected file:///PATH")
        return Path(unquote(split.path))
    _refuse_credentials(split)
    if not split.netloc and split.scheme == "s3":
        raise UsageError(f"{where}: found no bucket, expected s3://BUCKET/PREFIX")
    return Store(f"{split.scheme}://{split.netloc}", split.path.strip("/"), split.query)


def _refuse_credentials(split: SplitResult) -> None:
    """Refuse a password in a URL, and a user name where it can only be one of a credential; the error shows neither."""
    cut = split.scheme == "s3" and ":" in split.netloc and "@" not in split.netloc  # by a slash in the password
    if not cut and split.password is None and (split.username is None or split.scheme not in ("s3", *HTTP)):
        return
    variables = {
        "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE)",
        "gs": "GOOGLE_APPLICATION_CREDENTIALS",
        "http": "a signed address, or a folder that the server protects otherwise",
        "https": "a signed address, or a folder that the server protects otherwise",
    }
    remedy = variables.get(split.scheme, "the variables of its provider")
    shown = "" if cut else f"@{split.netloc.rpartition('@')[2]}{split.path}"
    raise UsageError(
        f"{split.scheme}://...{shown}: found credentials in a URL, which may be stored and shown; expected {remedy}"
    )


def size_of(file: Place) -> int:
    """The size of a file in bytes; 0 if there is none."""
    if isinstance(file, Store):
        with explained(file):
            return int(file.filesystem.get_file_info(file.inside).size or 0)
    return file.stat().st_size if file.is_file() else 0


def stamp_of(file: Place) -> tuple[int, int]:
    """Size and time of the last change of a file (in nanoseconds), to tell whether it has changed."""
    if isinstance(file, Store):
        with explained(file):
            info = file.filesystem.get_file_info(file.inside)
        return int(info.size or 0), int(info.mtime_ns or 0)
    if not file.is_file():
        return 0, 0
    return file.stat().st_size, file.stat().st_mtime_ns


def absolute(where: str) -> str:
    """A path that means the same in every process; URLs, and the empty path of data in memory, stay as they are.

    >>> absolute("s3://bucket/a"), absolute(""), absolute("/a/b")
    ('s3://bucket/a', '', '/a/b')
    """
    found = place(where)
    return str(found.absolute()) if where and isinstance(found, Path) else where


def is_url(where: str) -> bool:
    """Whether this is a URL of an object store."""
    return isinstance(place(where), Store)


def is_found(reference: str) -> bool:
    """Whether a field of a job is a URL or an absolute path (a resolved one), and not the name of a step or model."""
    return _URL.match(reference) is not None or Path(reference).is_absolute()


def local(where: str, what: str) -> Path:
    """The local path for ``what``; refuses the URL of a store."""
    path = place(where)
    if isinstance(path, Store):
        raise UsageError(f"{path}: {what} must be on a local disk, but this is a URL; give a path")
    return path


@contextmanager
def explained(where: Place) -> Iterator[None]:
    """Translate a store's errors into distagg's; errors of a local disk pass unchanged."""
    try:
        yield
    except DistaggError:
        raise
    except Exception as error:
        if isinstance(where, Path) or not (isinstance(error, OSError) or where.scheme in HTTP):
            raise
        known = reason(where, error)
        text = error_text(where, error)
        raise known or InfrastructureError(f"{where}: {text}; check the store, then run again") from (
            None if where.secret else error
        )


def error_text(where: Place, error: Exception) -> str:
    """What an error says; only its kind if the address is secret, which libraries put into their errors."""
    return type(error).__name__ if isinstance(where, Store) and where.secret else str(error)


def reason(where: Place, error: Exception) -> DistaggError | None:
    """The distagg error for a common error of a store; None for others and for local disks."""
    if not isinstance(where, Store):
        return None
    if where.secret:
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else OSError
        error = kind(error_text(where, error))
    return meaning(str(where), error)


class Sink:
    """A writable object of a store that hashes and counts its bytes, so that they need not be read again."""

    def __init__(self, target: Store) -> None:
        self.target, self._stream, self._hash = target, target.open("wb"), hashlib.sha256()
        self.bytes, self.closed = 0, False

    def write(self, body: Any) -> int:
        with explained(self.target):
            self._stream.write(body)
        self._hash.update(body)
        self.bytes += len(body)
        return len(body)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Do nothing: an object appears when it is closed."""

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        with explained(self.target):
            self._stream.close()

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


@functools.lru_cache(maxsize=16)
def filesystem_of(root: str, query: str, given: str) -> tuple[Any, str]:
    """The file system of a root, and the root's name in it."""
    from pyarrow import fs

    split = urlsplit(root)
    if split.scheme != "s3":
        if split.scheme in HTTP:
            return _fsspec(split.scheme, root), ""
        try:
            filesystem, top = fs.FileSystem.from_uri(f"{root}/" + (f"?{query}" if query else ""))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, ImportError) as error:
            try:
                filesystem, top = _fsspec(split.scheme, root), split.netloc
            except UsageError:
                raise UsageError(
                    f"{root}: found '{split.scheme}://' ({str(error).splitlines()[0]}), expected a path, s3://, gs://, "
                    "abfs://, https://, file:// or another scheme that pyarrow or fsspec knows"
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
    try:
        connect = fs.S3FileSystem
    except ImportError as error:
        raise UsageError(f"{root}: {error}, as conda's pyarrow-core is not; install conda's package pyarrow") from error
    filesystem = connect(
        endpoint_override=override,
        scheme=options.get("scheme") or (server.scheme if "endpoint_override" not in options else "") or "https",
        region=region if region is not None else fs.resolve_s3_region(split.netloc),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        background_writes=False,  # otherwise data for a slow network would pile up in memory
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
    )
    return filesystem, split.netloc


def _fsspec(scheme: str, root: str) -> Any:
    """A file system of fsspec, as pyarrow's."""
    from pyarrow import fs

    try:
        import fsspec  # type: ignore[import-untyped]

        made = fsspec.filesystem(scheme, skip_instance_cache=False)
    except (ImportError, ValueError) as error:
        reason = str(error).splitlines()[0]
        extra = "http" if scheme in HTTP else scheme
        raise UsageError(
            f"{root}: found '{scheme}://', which needs another package ({reason}): "
            f"python -m pip install 'fsspec[{extra}]'"
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(made))


def meaning(url: str, error: Exception) -> DistaggError | None:
    """The distagg error for a common error of a store, else None."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if re.search(r"NO_SUCH_BUCKET|NoSuchBucket", text):
        return InputError(
            url,
            found="no such bucket",
            expected="one that exists",
            remedy="create it first, or correct the URL or the endpoint (AWS_ENDPOINT_URL)",
        )
    if isinstance(error, FileNotFoundError):
        return InputError(url, found="nothing there", expected="an object")
    if _DENIED.search(text):
        return InfrastructureError(
            f"{url}: access denied; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE) and their "
            f"permissions in this bucket, then run again ({text})"
        )
    if _NETWORK.search(text):
        server = dict(parse_qsl(urlsplit(url).query)).get("endpoint_override") or endpoint() or "the store"
        server = hidden(f"://{server}" if "://" not in server else server).removeprefix("://")
        return InfrastructureError(
            f"{url}: no answer from {server}; check the network and AWS_ENDPOINT_URL (or endpoint_override in the "
            f"URL), then run again ({text})"
        )
    return None
