"""What of the folder for jobs a job may name: everything but a center's own (fault 51)."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.downloaders.egress_policy import EgressPolicy
from skep.errors import InvalidInput
from skep.jobs.apps.package_file import pack_place
from skep.jobs.definitions.jobs_folder import inside
from skep.jobs.generators.code_sandbox import CodeSandboxes
from skep.jobs.generators.generator_contract import GeneratorFailed
from skep.jobs.generators.sources import Sources
from skep.model.jobs.job import Generator
from skep.runtime.clock import SystemClock
from skep.streams.host_rules import UNCONNECTED


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As it is after `skep up`: the data folder lies in the working directory."""
    place = tmp_path / "work"
    for name in ("tool/main.py", "skep-data/admin.token", "skep-data/secrets/key"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x")
    (place / "way").symlink_to(place / "skep-data")
    (tmp_path / "outside").write_text("x")
    return place


@pytest.mark.parametrize(
    "name",
    ["skep-data", "skep-data/admin.token", "skep-data/secrets/key", "tool/../skep-data", "way"],
)
def test_a_job_never_reaches_into_a_data_folder(folder: Path, name: str) -> None:
    """An operator who could read the admin token would be an admin."""
    with pytest.raises(ValueError, match="data folder of a center"):
        inside(folder, name)


def test_what_lies_beside_a_data_folder_is_found(folder: Path) -> None:
    assert inside(folder, "tool/main.py").read_text() == "x"
    assert inside(folder, Path("tool")).is_dir()
    with pytest.raises(ValueError, match="outside the folder for jobs"):
        inside(folder, "../outside")


def test_a_folder_is_not_packed_with_a_data_folder_in_it(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="skep-data is the data folder"):
        pack_place(_without_link(folder), 10_000, tmp_path)


def test_where_the_folder_for_jobs_is_the_data_folder_its_own_files_are_closed(
    folder: Path,
) -> None:
    """In a container both are the working directory."""
    data = folder / "skep-data"
    (data / "jobs").mkdir()
    (data / "skep.db-wal").write_text("x")
    (data / "list.txt").write_text("x")
    assert inside(data, "list.txt").read_text() == "x"
    assert inside(data, "jobs").is_dir()
    assert inside(data / "jobs", ".").is_dir()
    for name in ("admin.token", "secrets/key", ".", "skep.db-wal"):
        with pytest.raises(ValueError, match="data folder of a center"):
            inside(data, name)


def _without_link(folder: Path) -> Path:
    (folder / "way").unlink()
    return folder


async def test_neither_lists_nor_queries_of_generators_reach_into_a_data_folder(
    folder: Path,
) -> None:
    (folder / "skep-data" / "skep.db").write_bytes(b"")
    clock = SystemClock()
    sources = Sources(
        CodeSandboxes(EgressPolicy(), clock, 1, "never"), folder, {}, UNCONNECTED, clock
    )
    for named in (
        Generator("sql", url="sqlite:///skep-data/skep.db", query="SELECT 1"),
        Generator("file", path="skep-data/admin.token"),
    ):
        with pytest.raises(GeneratorFailed, match="data folder of a center"):
            await anext(aiter(sources.open(named)))
