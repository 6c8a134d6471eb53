"""What a test needs of its machine, and whether its absence skips or fails the test.

The only place that skips; a contract test keeps it so. There are two kinds of needs: servers,
which `make test` installs and therefore demands, and permissions (namespaces, mounts,
containers), which the kernel may withhold. CI=true demands both; plain pytest demands neither.
`needs_plugin` has the marker, and passes every ServerMissing and NotPermitted of a test on to
`absent`.

    @pytest.mark.needs("bwrap")
    def test_of_isolation(): ...

    with unless_absent(), small_disk(folder) as disk: ...
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import NoReturn

import pytest

from skep.testing.grounds.isolation import why_no_box
from skep.testing.private import NotPermitted, ServerMissing

TRUE = {"1", "true", "yes"}
#: Installed or not, what these programs do depends on what the kernel permits. Besides
#: NotPermitted, their absence is the only reason to skip under `make test`.
PERMISSION_PACKAGES = {"podman", "buildah", "runc", "bubblewrap", "iproute2", "systemd"}
#: What tests use beside the servers, with the Debian package.
PROGRAMS = {
    "curl": "curl",
    "git": "git",
    "openssl": "openssl",
    "podman": "podman",
    "redis-server": "redis-server",
    "ssh": "openssh-client",
    "systemd-analyze": "systemd",
}


def servers_are_needed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an absent server fails a test."""
    return _is_set(environment, "CI") or _is_set(environment, "SKEP_TESTS_NEED_SERVERS")


def permissions_are_needed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a permission that the machine withholds fails a test."""
    return _is_set(environment, "CI")


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in TRUE


def absent(reason: ServerMissing | NotPermitted) -> NoReturn:
    """Skip the test or fail it, as the environment demands."""
    needed = permissions_are_needed() if _is_permission(reason) else servers_are_needed()
    if needed:
        pytest.fail(str(reason))
    pytest.skip(str(reason))


def _is_permission(reason: ServerMissing | NotPermitted) -> bool:
    return isinstance(reason, NotPermitted) or reason.package in PERMISSION_PACKAGES


@contextmanager
def unless_absent() -> Iterator[None]:
    """For fixtures: what raises ServerMissing or NotPermitted skips or fails the test."""
    try:
        yield
    except (ServerMissing, NotPermitted) as reason:
        absent(reason)


def needs(*names: str) -> None:
    """Skip or fail the running test unless this machine has everything named."""
    for name in names:
        with unless_absent():
            _probe(name)


def _probe(name: str) -> None:
    if name in PROGRAMS:
        if shutil.which(name) is None:
            raise ServerMissing(name, PROGRAMS[name])
    elif reason := PROBES[name]():
        raise NotPermitted(reason)


def _not_root() -> str:
    return "" if os.geteuid() == 0 else "only root can give code another user"


@cache
def _no_mount_namespace() -> str:
    program = shutil.which("unshare")
    if program is None:
        return "unshare is not installed"
    command = [program, "--map-root-user", "--mount", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"no mount namespaces: {done.stderr.strip()}" if done.returncode else ""


#: Why a permission is absent; "" where it is present.
PROBES: Mapping[str, Callable[[], str]] = {
    "bwrap": why_no_box,
    "root": _not_root,
    "mount namespace": _no_mount_namespace,
}
