"""Secrets for applications: files in a separate folder, or secrets of the store. Centers only.

`DATA/secrets` contains the center's own keys; an application must never get one of those, so
its secrets are in `DATA/secrets/apps`. Files of older versions directly in `DATA/secrets`
still work, unless a setting uses them. A file wins over a stored secret of the same name.
"""

from __future__ import annotations

import logging
from pathlib import Path

from skep.errors import ConfigurationError
from skep.jobs.endings.notices import StoredSecret, nothing_stored, read_secret
from skep.settings import Settings

log = logging.getLogger(__name__)


class AppSecrets:
    """Reads secrets by name. `own` are the names that settings use."""

    def __init__(
        self,
        folder: Path,
        own: frozenset[str] = frozenset(),
        *,
        signing: str = "",
        warn: bool = False,
        stored: StoredSecret = nothing_stored,
    ) -> None:
        """`signing` is the one that signs notices. `warn`: log a line for each file that should
        be moved."""
        self._folder = folder
        self._own = own
        #: Names that must not sign a notice.
        self.unsigned = own - {signing}
        self._warn = warn
        self._stored = stored

    @classmethod
    def of(
        cls, settings: Settings, *, warn: bool = False, stored: StoredSecret = nothing_stored
    ) -> AppSecrets:
        said = (settings.archive.secret, settings.notices.secret, settings.notices.mail_secret)
        names = frozenset(Path(name).name for name in said if name)
        folder, signing = Path(settings.data).absolute() / "secrets", settings.notices.secret
        return cls(folder, names, signing=Path(signing).name, warn=warn, stored=stored)

    def text(self, name: str) -> str:
        """The value of a variable; raises ConfigurationError, which never shows what was read."""
        try:
            text = self._read(name).decode()
        except UnicodeDecodeError:
            raise ConfigurationError(f"the secret {name!r} is not text") from None
        if "\0" in text:
            raise ConfigurationError(f"the secret {name!r} is not text")
        return text

    def _read(self, name: str) -> bytes:
        apart = self._folder / "apps"
        if (apart / Path(name).name).exists():
            return read_secret(apart, name)
        if Path(name).name in self._own:
            raise ConfigurationError(
                f"the secret {name!r} belongs to the center; "
                "put secrets of applications into DATA/secrets/apps"
            )
        if not (self._folder / Path(name).name).is_file():
            return read_secret(apart, name, self._stored)
        if self._warn:
            log.warning("secret %s of an application: move it to %s", name, apart)
        return read_secret(self._folder, name)
