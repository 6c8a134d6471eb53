"""What a test needs of its machine, and whether a missing need skips or fails the test.

The only place that skips; a contract test checks that. There are two kinds of needs: servers, which
`make test` installs and therefore requires, and permissions (namespaces, mounts, containers), which
the kernel may deny. CI=true requires both; plain pytest requires neither. `needs_plugin` has the
marker, and passes every ServerMissing and NotPermitted of a test to `absent`.

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
#: These programs depend on permissions of the kernel, even if they are installed. Besides
#: NotPermitted, their absence is the only reason to skip under `make test`.
PERMISSION_PACKAGES = {"podman", "buildah", "runc", "bubblewrap", "iproute2", "systemd"}
#: Programs that tests use in addition to the servers, with their Debian packages.
PROGRAMS = {
    "curl": "curl",
    "git": "git",
    "openssl": "openssl",
    "podman": "podman",
    "redis-server": "redis-server",
    "ssh": "openssh-client",
    "systemd-analyze": "systemd",
    "chromium": "chromium",
}


def servers_are_needed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a missing server fails a test."""
    return _is_set(environment, "CI") or _is_set(environment, "SKEP_TESTS_NEED_SERVERS")


def permissions_are_needed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a missing permission fails a test."""
    return _is_set(environment, "CI")


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in TRUE


def absent(reason: ServerMissing | NotPermitted) -> NoReturn:
    """Skip or fail the test, as the environment requires."""
    needed = permissions_are_needed() if _is_permission(reason) else servers_are_needed()
    if needed:
        pytest.fail(str(reason))
    pytest.skip(str(reason))


def _is_permission(reason: ServerMissing | NotPermitted) -> bool:
    return isinstance(reason, NotPermitted) or reason.package in PERMISSION_PACKAGES


@contextmanager
def unless_absent() -> Iterator[None]:
    """For fixtures: ServerMissing or NotPermitted inside it skips or fails the test."""
    try:
        yield
    except (ServerMissing, NotPermitted) as reason:
        absent(reason)


def needs(*names: str) -> None:
    """Skip or fail the current test unless this machine has everything named."""
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
    return "" if os.geteuid() == 0 else "only root can run code as another user"


@cache
def _no_mount_namespace() -> str:
    program = shutil.which("unshare")
    if program is None:
        return "unshare is not installed"
    command = [program, "--map-root-user", "--mount", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"no mount namespaces: {done.stderr.strip()}" if done.returncode else ""


#: Why a permission is missing; "" = it is present.
PROBES: Mapping[str, Callable[[], str]] = {
    "bwrap": why_no_box,
    "root": _not_root,
    "mount namespace": _no_mount_namespace,
}
