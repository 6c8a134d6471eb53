"""Assembles users, logins and sessions for one center. Run once; nothing starts here."""

from __future__ import annotations

from dataclasses import dataclass

from skep.access.audit import AuditTrail
from skep.access.login import LinkLogin, Login, LoginLinks, Logins, PasswordLogin
from skep.access.login_attempts import LoginAttempts
from skep.access.passwords import Passwords
from skep.access.secret_keys import SecretKeys
from skep.access.stored_secrets import StoredSecrets
from skep.center.foundation import Foundation
from skep.center.http.authentication import Auth
from skep.center.http.path_prefix import root_of
from skep.center.http.session_cookie import SessionCookie


@dataclass(frozen=True, slots=True)
class AccessAssembly:
    """What the endpoints of users and sessions use."""

    logins: Logins
    links: LoginLinks
    passwords: Passwords
    cookie: SessionCookie
    audit: AuditTrail
    #: Secrets in the store.
    secrets: StoredSecrets
    #: The URL behind a proxy; "" = none.
    public_url: str

    def link_url(self, address: str, secret: str) -> str:
        """The URL of a login link. The secret follows `#`: browsers do not send that part, so no
        proxy logs it, and the page logs in with a POST, so a link preview does not use it up."""
        return f"{(self.public_url or address).rstrip('/')}/login#{secret}"


def build_audit(base: Foundation) -> AuditTrail:
    """The audit log of this center."""
    return AuditTrail(base.store, base.clock, base.name, base.settings.access)


def build_secrets(base: Foundation) -> StoredSecrets:
    """Raises ConfigurationError for settings that cannot work."""
    return StoredSecrets(base.store, SecretKeys.of(base.settings), base.clock)


def build_access(
    base: Foundation, auth: Auth, audit: AuditTrail, secrets: StoredSecrets
) -> AccessAssembly:
    """Build all parts. Another way to log in is one more entry of the table."""
    store, clock, settings = base.store, base.clock, base.settings
    passwords = Passwords()
    ways: dict[str, Login] = {
        "password": PasswordLogin(store, passwords, clock),
        "link": LinkLogin(store, clock, LoginAttempts(clock, settings.center.wrong_tokens)),
    }
    public = settings.center.public_url
    return AccessAssembly(
        Logins(ways, auth.sessions),
        LoginLinks(store, clock, settings.access),
        passwords,
        SessionCookie(public, root_of(public)),
        audit,
        secrets,
        public,
    )
