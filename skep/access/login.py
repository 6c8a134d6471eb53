"""Ways to log in. Each is a `Login`; a center has a table of them. Run by centers only.

Another way (an identity provider, a certificate) is one class that names the user. Sessions,
cookies and the audit log do not depend on the way. An error never says whether the user name or
the password was wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from skep.access.credentials import digest_of
from skep.access.login_attempts import LoginAttempts, network_of
from skep.access.passwords import Passwords
from skep.access.sessions import LoginOrigin, Sessions
from skep.errors import Forbidden, InvalidInput, TooManyTries, Unauthorized
from skep.model.people.user import NewSession, User
from skep.runtime.clock import Clock
from skep.runtime.ids import new_secret
from skep.settings import AccessSettings
from skep.store.ports import Store
from skep.wire.api.people.login import LoginForm

LINK_PREFIX = "skep_link"
FIRST_ADMIN = "admin"
#: Passwords of one account that are being checked at the same time; further calls are refused,
#: so that logins on one account cannot delay those on others.
PER_ACCOUNT = 2
#: Wrong passwords per minute for one account, from one address and from all.
WRONG_HERE, WRONG_EVERYWHERE = 10, 60
_WRONG = "the user name or the password is wrong"
_WAIT = (
    "too many wrong passwords for this user; wait a minute, or use a login link"
    " (`skep user link NAME`)"
)


class Login(Protocol):
    """One way to log in."""

    async def user_of(self, form: LoginForm, origin: LoginOrigin) -> str:
        """The name of the authenticated user. Called once per login. Raises Unauthorized for a
        wrong proof, TooManyTries, and Unavailable if it cannot be checked."""


class PasswordLogin:
    """By user name and password."""

    def __init__(self, store: Store, passwords: Passwords, clock: Clock) -> None:
        self._store = store
        self._passwords = passwords
        self._here = LoginAttempts(clock, WRONG_HERE)
        self._everywhere = LoginAttempts(clock, WRONG_EVERYWHERE)
        self._checking: Counter[str] = Counter()

    async def user_of(self, form: LoginForm, origin: LoginOrigin) -> str:
        name = form.user
        here = f"{network_of(origin.address)} {name}"
        if self._here.over(here) or self._everywhere.over(name):
            raise TooManyTries(_WAIT)
        with self._one_of_few(name):
            if await self._fits(name, form.password):
                return name
        self._here.failed(here)
        self._everywhere.failed(name)
        raise Unauthorized(_WRONG)

    async def _fits(self, name: str, password: str) -> bool:
        """An unknown and a disabled user cost as much time as a wrong password."""
        found = await self._store.users.login(name)
        user, encoded = found if found is not None else (None, "")
        fits = await self._passwords.fits(password, encoded)
        return fits and user is not None and not user.disabled

    @contextmanager
    def _one_of_few(self, name: str) -> Iterator[None]:
        if self._checking[name] >= PER_ACCOUNT:
            raise TooManyTries(_WAIT)
        self._checking[name] += 1
        try:
            yield
        finally:
            self._checking[name] -= 1
            if not self._checking[name]:
                del self._checking[name]


class LinkLogin:
    """By a link that is valid once, for some minutes."""

    def __init__(self, store: Store, clock: Clock, tries: LoginAttempts) -> None:
        self._store = store
        self._clock = clock
        self._tries = tries

    async def user_of(self, form: LoginForm, origin: LoginOrigin) -> str:
        if self._tries.over(origin.address):
            raise self._tries.refusal(origin.address)
        try:
            return await self._store.login_links.use(digest_of(form.link), self._clock.now())
        except Unauthorized:
            self._tries.failed(origin.address)
            raise


class Logins:
    """Every way to log in, by its kind."""

    def __init__(self, ways: Mapping[str, Login], sessions: Sessions) -> None:
        self._ways = ways
        self._sessions = sessions

    async def log_in(self, form: LoginForm, origin: LoginOrigin) -> tuple[str, NewSession]:
        """Begin a session; returns its secret id. Raises what the way raises."""
        way = self._ways.get(form.kind)
        if way is None:
            known = ", ".join(self._ways)
            raise InvalidInput(f"{form.kind[:50]!r} is not a way to log in; use one of {known}")
        user = await way.user_of(form, origin)
        return await self._sessions.begin(user, form.kind, origin)

    async def prove_password(self, user: str, password: str, address: str) -> None:
        """Check the password of a user who is logged in, with the limits of a login. Raises
        Forbidden for a wrong one: the session stays."""
        way = self._ways["password"]
        try:
            await way.user_of(LoginForm(user=user, password=password), LoginOrigin(address))
        except Unauthorized:
            raise Forbidden("the present password is wrong") from None


class LoginLinks:
    """Makes one-time login links."""

    def __init__(self, store: Store, clock: Clock, settings: AccessSettings) -> None:
        self._store = store
        self._clock = clock
        self._seconds = settings.login_link_seconds

    async def make(self, user: str) -> tuple[str, float]:
        """The secret part of a link, and when it expires. Raises NotFound."""
        secret, now = new_secret(LINK_PREFIX), self._clock.now()
        await self._store.login_links.add(digest_of(secret), user, now, now + self._seconds)
        return secret, now + self._seconds

    async def first_admin(self) -> User:
        """The admin for whom a starting center makes a link; without any, one is created, who has
        no password. Raises Conflict."""
        return await self._store.users.first_admin(FIRST_ADMIN, self._clock.now())
