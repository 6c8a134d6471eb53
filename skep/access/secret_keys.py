"""The keys of stored secrets: a file that only the center reads, or the output of a command.

Each line is one key in base64. The first encrypts; all of them decrypt, so that two keys are valid
while secrets are encrypted again. Keys are never in the store, a backup, a log or an answer.
Everything here blocks.
"""

from __future__ import annotations

import binascii
import os
import shlex
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from stat import S_IRWXG, S_IRWXO

from skep.errors import ConfigurationError
from skep.runtime.files import write_durably
from skep.runtime.secret_encryption import KEY_BYTES, key_id, new_key
from skep.settings import Settings

FILE = "secret.keys"
COMMAND_SECONDS = 30.0
MOST_KEYS = 10


class SecretKeys:
    """The keys of one center; the file is read again when it changes."""

    def __init__(self, file: Path, command: str = "") -> None:
        self._file = file
        self._command = command
        self._keys: dict[str, bytes] = {}
        self._stamp: tuple[int, int, int] | None = None

    @classmethod
    def of(cls, settings: Settings) -> SecretKeys:
        """Raises ConfigurationError for a file that a backup would copy."""
        data, said = Path(settings.data).absolute(), settings.access.secret_key_file
        file = Path(said).absolute() if said else data / FILE
        if file.is_relative_to(data / "secrets"):
            raise ConfigurationError(
                f"access.secret_key_file: {file} would be part of backups; choose another folder"
            )
        return cls(file, settings.access.secret_key_command)

    @property
    def place(self) -> str:
        """Where the keys come from, for messages."""
        return "access.secret_key_command" if self._command else str(self._file)

    def all(self) -> dict[str, bytes]:
        """Keys by id, the first one encrypts; empty without a file. Raises ConfigurationError."""
        if self._command:
            if not self._keys:
                self._keys = self._parsed(self._output())
            return self._keys
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._keys = self._parsed(self._content()) if stamp else {}
            self._stamp = stamp
        return self._keys

    def add(self) -> str:
        """Make a new key, put it before the others, and return its id; raises
        ConfigurationError."""
        if self._command:
            raise ConfigurationError(
                "access.secret_key_command gives the keys; add one there, restart the centers, and "
                "rotate without a new key"
            )
        keys = [new_key(), *self.all().values()][:MOST_KEYS]
        lines = b"".join(b64encode(key) + b"\n" for key in keys)
        try:
            write_durably(self._file, lines)
        except OSError as error:
            raise ConfigurationError(f"cannot write {self._file}: {error.strerror}") from error
        return next(iter(self.all()))

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(f"cannot read {self._file}: {error.strerror}") from error
        if found.st_mode & (S_IRWXG | S_IRWXO):
            raise ConfigurationError(
                f"other users may read {self._file}; run `chmod 600 {self._file}`"
            )
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _content(self) -> bytes:
        try:
            return self._file.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read {self._file}: {error.strerror}") from error

    def _output(self) -> bytes:
        try:
            done = subprocess.run(  # noqa: S603 - written by the operator
                shlex.split(self._command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_SECONDS,
                check=True,
                env=dict(os.environ),
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ConfigurationError(
                f"access.secret_key_command failed ({type(error).__name__})"
            ) from None
        return done.stdout

    def _parsed(self, data: bytes) -> dict[str, bytes]:
        keys = [_key(line, self.place) for line in data.split()]
        if not keys or len(keys) > MOST_KEYS:
            raise ConfigurationError(f"{self.place}: expected 1 to {MOST_KEYS} lines, each a key")
        return {key_id(key): key for key in keys}


def _key(line: bytes, place: str) -> bytes:
    """Raises ConfigurationError, which never shows the line."""
    try:
        key = b64decode(line, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"{place}: a line is not a key of {KEY_BYTES} bytes in base64")
    return key
