"""Hostile texts as URI, title, header, item and body in Chromium: nothing runs or loads. P4."""

from __future__ import annotations

import pytest

from skep.testing.grounds.centers import RunningCenter
from skep.testing.grounds.chromium import Window
from skep.testing.grounds.collected_data import answered, collected
from skep.testing.grounds.hostile_texts import HOSTILE_TEXTS, MARK
from skep.testing.polling import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.needs("chromium"),
]


async def _ran(window: Window) -> bool:
    found: bool = await window.page.evaluate(f"'{MARK}' in window")
    return found


async def test_collected_texts_never_run(admin: Window, center: RunningCenter) -> None:
    """Calls to another server and refused loads are faults of the window."""
    title = "".join(f"<title>{text}</title>" for text in HOSTILE_TEXTS)
    body = (title + "<hr>".join(HOSTILE_TEXTS)).encode()
    ascii_texts = [text.encode("ascii", "replace").decode() for text in HOSTILE_TEXTS]
    headers = [(f"X-{at}", text.replace("\t", " ")) for at, text in enumerate(ascii_texts)]
    headers.append(("Content-Type", "text/html"))
    await center.admin.post("/api/v1/runs/waits/pause")
    one = await answered(center, "hostile", body, headers, "http://a.test/?q=<script>alert(1)")
    await collected(center, "hostile-items", [{"text": text} for text in HOSTILE_TEXTS])
    await center.admin.post("/api/v1/runs/waits/continue")
    paths = ["/requests?filter=run%3Ahostile", f"/requests/{one}", "/data/hostile-items"]
    paths += [f"/requests/{one}?tab=answer", f"/requests/{one}?tab=page"]
    for path in paths:
        await admin.open(path)
        await admin.page.wait_for_load_state("load")
        assert not await _ran(admin), path

    async def framed() -> bool:
        return any(frame.url.endswith(f"/requests/{one}/page") for frame in admin.page.frames)

    await until(framed)
    assert not await _ran(admin)
    assert admin.faults == []
