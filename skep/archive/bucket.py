"""One bucket of S3-compatible storage, or a folder in it: whole objects in, ranges out.

The only module that uses the client library. Centers use it for their archive. An error of the
storage becomes one sentence with the storage's own code; it never contains a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError
from obstore.store import S3Store

from skep.archive.segment_objects import Found
from skep.errors import ArchiveDown, ConfigurationError

if TYPE_CHECKING:
    from obstore.store import S3Config

#: Time limit of one call, to the last byte of the answer; and of a call with much data.
CALL, LONG_CALL = timedelta(seconds=20), timedelta(minutes=5)
MUCH = 8 * 2**20
CONNECT = timedelta(seconds=3)
#: Answers 5xx and lost connections are retried, with a growing random pause.
RETRIES = 4
RETRY_FOR = timedelta(seconds=10)
PAUSE_FIRST, PAUSE_MOST = timedelta(milliseconds=100), timedelta(seconds=2)
NO_BUCKET = "NoSuchBucket"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FOLDER = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9._-]*/)*")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_STATUS = re.compile(r"status code: ([0-9]{3}[A-Za-z ]{0,40})")


class BucketPlace(NamedTuple):
    """The location of a bucket."""

    bucket: str
    #: "" or a path that ends with a slash.
    folder: str = ""
    #: "" = Amazon S3, by region.
    endpoint: str = ""
    region: str = "us-east-1"

    def __str__(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else f" in {self.region}"
        return f"s3://{self.bucket}/{self.folder}{at}"


def place_of(url: str) -> BucketPlace:
    """From s3://BUCKET/FOLDER?endpoint=...&region=...; raises ConfigurationError."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigurationError(
            "archive.url must not contain credentials: put them into a file and name it in "
            "archive.secret, or into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)."
        )
    folder = f"{path}/" if (path := parts.path.strip("/")) else ""
    if not _BUCKET.fullmatch(parts.netloc) or not _FOLDER.fullmatch(folder):
        raise ConfigurationError("archive.url: write it as s3://BUCKET/FOLDER?endpoint=URL")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - {"endpoint", "region"}:
        raise ConfigurationError(f"archive.url: {min(unknown)!r} is not endpoint or region")
    endpoint = options.get("endpoint", "").rstrip("/")
    if endpoint and not re.fullmatch(r"https?://[^/?#@\s]+", endpoint):
        raise ConfigurationError("archive.url: write the endpoint as http[s]://HOST:PORT")
    return BucketPlace(parts.netloc, folder, endpoint, options.get("region") or "us-east-1")


class Bucket:
    """Calls to one bucket. Every call raises ArchiveDown when the storage is not available."""

    def __init__(self, place: BucketPlace, login: tuple[str, str] | None = None) -> None:
        self.place = place
        self._quick = _open(place, login, CALL)
        self._patient = _open(place, login, LONG_CALL)

    def _for(self, size: int) -> S3Store:
        return self._patient if size > MUCH else self._quick

    async def put(self, key: str, data: bytes | bytearray) -> None:
        """Write or replace; all or nothing, and durable when it returns."""
        with self._explained("write"):
            await obstore.put_async(self._for(len(data)), key, data, use_multipart=False)

    async def put_new(self, key: str, data: bytes) -> bool:
        """Write a new object; False, and nothing changes, when it exists."""
        try:
            with self._explained("write"):
                store = self._for(len(data))
                await obstore.put_async(store, key, data, mode="create", use_multipart=False)
        except _Taken:
            return False
        return True

    async def get(self, key: str, start: int, length: int) -> bytes | None:
        """A range of an object; None when the object or some of the bytes do not exist."""
        try:
            with self._explained("read"):
                store = self._for(length)
                data = await obstore.get_range_async(store, key, start=start, length=length)
        except _Missing:
            return None
        return bytes(data) if len(data) == length else None

    async def size(self, key: str) -> int | None:
        """The size of an object; None when it does not exist."""
        try:
            with self._explained("read"):
                return (await obstore.head_async(self._quick, key))["size"]
        except _Missing:
            return None

    async def list(self, folder: str = "") -> list[Found]:
        """All objects below a folder."""
        found: list[Found] = []
        with self._explained("list"):
            async for page in obstore.list(self._quick, folder or None, chunk_size=1000):
                found += [
                    Found(one["path"], one["size"], one["last_modified"].timestamp())
                    for one in page
                ]
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; a missing object is not an error."""
        with self._explained("delete"):
            await obstore.delete_async(self._quick, keys)

    @contextmanager
    def _explained(self, act: str) -> Iterator[None]:
        try:
            yield
        except AlreadyExistsError as error:
            raise _Taken from error
        except FileNotFoundError as error:
            if act == "read" and NO_BUCKET not in str(error):
                raise _Missing from error
            raise self._down(act, self._no_bucket()) from error
        except PermissionDeniedError as error:
            why = f"refused ({reason(error)}): check the credentials and their permissions"
            raise self._down(act, why) from error
        except BaseError as error:
            why = self._no_bucket() if NO_BUCKET in str(error) else reason(error)
            raise self._down(act, why) from error

    def _no_bucket(self) -> str:
        return f"there is no bucket {self.place.bucket}"

    def _down(self, act: str, why: str) -> ArchiveDown:
        return ArchiveDown(f"cannot {act} in the archive {self.place}: {why}")


def _open(place: BucketPlace, login: tuple[str, str] | None, call: timedelta) -> S3Store:
    # One DELETE per object: not every storage supports deleting many at once.
    config: S3Config = {"region": place.region, "disable_bulk_delete": True}
    if place.endpoint:
        config["endpoint"] = place.endpoint
    if login:
        config["access_key_id"], config["secret_access_key"] = login
    return S3Store(
        place.bucket,
        prefix=place.folder or None,
        config=config,
        client_options={
            "allow_http": place.endpoint.startswith("http://"),
            "timeout": call,
            "connect_timeout": CONNECT,
        },
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": RETRY_FOR,
            "backoff": {"init_backoff": PAUSE_FIRST, "max_backoff": PAUSE_MOST, "base": 2},
        },
    )


class _Missing(Exception):
    """There is no such object."""


class _Taken(Exception):
    """There is such an object already."""


def reason(error: Exception) -> str:
    """The message of the storage, without the details that the client adds."""
    text = str(error)
    said = [match[1].strip() for find in (_STATUS, _CODE) if (match := find.search(text))]
    if said:
        return ", ".join(said)
    first = text.partition("\n")[0]
    return "it does not answer" if "HTTP error" in first else first[:200]
