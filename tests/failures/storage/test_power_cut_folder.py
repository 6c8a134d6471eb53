"""Power cuts over a whole data folder: the center starts again after each of them (R2)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from skep.testing.faults.power_cut_folder import FolderImages
from skep.testing.grounds.centers import running_center


@pytest.mark.fault
async def test_a_new_center_survives_a_power_cut_at_any_sync(tmp_path: Path) -> None:
    """R2: `center.name`, tokens and addresses are whole or absent after every cut, and what was
    answered with 2xx is known to the center that starts again."""
    cuts = FolderImages(tmp_path / "data", tmp_path / "images", Random(2))
    (tmp_path / "data").mkdir(mode=0o700)
    with cuts.watching():
        async with running_center(tmp_path / "data") as center:
            name, token = center.services.name, center.local.admin_token
            answered = len(cuts.images)
            await center.archive_pages(6)
            cuts.cut()
    assert len(cuts.images) >= 10
    for number, image in enumerate(cuts.images):
        async with running_center(image) as again:
            assert (await again.anyone.get("/readyz")).status == 200
            if number >= answered:
                assert again.services.name == name
                assert again.local.admin_token == token
    assert list(cuts.images[-1].glob("*.new")) == []
