"""Podman for a test: a private store with one small image, removed afterwards.

The image contains only busybox. With these options and settings podman works on machines where
limits cannot be raised and control groups have mixed versions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from skep.testing.private import NotPermitted, ServerFailed, find_program

IMAGE = "localhost/skep-test"
SECONDS = 60.0
_CONFIGURATION = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_RECIPE = """
FROM scratch
COPY busybox /bin/busybox
COPY busybox /bin/sh
ENV PATH=/bin IMAGES_OWN=yes
CMD ["/bin/sh", "-c", "echo from the image"]
"""


@dataclass(frozen=True, slots=True)
class Podman:
    """The folder of podman's data."""

    folder: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Options of podman: a private store."""
        place = ("--root", str(self.folder / "s"), "--runroot", str(self.folder / "r"))
        return (*place, "--storage-driver", "overlay")

    @property
    def environment(self) -> dict[str, str]:
        """Variables that an agent needs to use it."""
        return {"CONTAINERS_CONF": str(self.folder / "containers.conf")}

    def call(self, program: str, *words: str) -> str:
        """Its output; raises ServerFailed."""
        done = subprocess.run(
            [find_program(program, program), *self.options, *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"{program} {words[0]}: {done.stderr[-2000:]}")
        return done.stdout

    def names(self) -> list[str]:
        """Of all containers, running or not."""
        return self.call("podman", "ps", "--all", "--format", "{{.Names}}").split()

    def build(self) -> None:
        recipe = self.folder / "recipe"
        recipe.mkdir()
        shutil.copy(find_program("busybox", "busybox-static"), recipe / "busybox")
        (recipe / "Containerfile").write_text(_RECIPE)
        (self.folder / "containers.conf").write_text(_CONFIGURATION)
        apart = ("--isolation", "chroot", "--network", "host")
        self.call("buildah", "bud", *apart, "-t", IMAGE, str(recipe))


@contextmanager
def podman() -> Iterator[Podman]:
    """With its image; raises ServerMissing or NotPermitted."""
    for program in ("podman", "buildah", "runc"):
        find_program(program, program)
    # A short path: the names of the sockets below it are limited.
    ground = Podman(Path(tempfile.mkdtemp(prefix="skep-pod-")))
    try:
        try:
            ground.build()
        except ServerFailed as error:
            raise NotPermitted(f"no containers: {str(error)[-300:]}") from error
        try:
            yield ground
        finally:
            ground.call("podman", "rm", "--all", "--force")
    finally:
        shutil.rmtree(ground.folder, ignore_errors=True)
