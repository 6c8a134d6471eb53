"""User code where bubblewrap is not installed: who runs it, who refuses it, and who says so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skep.downloaders.egress_policy import EgressPolicy
from skep.embed.embedded import with_local_code
from skep.jobs.generators.code_sandbox import CodeSandboxes, SandboxRequest
from skep.jobs.generators.generator_contract import GeneratorFailed
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, CenterSettings, JobsSettings, Settings

YIELDS = "def generate():\n    yield 'http://a.example/'\n"


def test_skep_up_on_loopback_warns(tmp_path: Path) -> None:
    """S7: it runs user code without a box, so that a bare machine works, and says so."""
    (tmp_path / "bin").mkdir()
    words = ["up", "--data", str(tmp_path / "data"), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "skep", *words],
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("agent "):
                break
        assert any("without a sandbox" in line and "bubblewrap" in line for line in said), said
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("host", "code"),
    [("127.0.0.1", "always"), ("localhost", "always"), ("::1", "always"), ("0.0.0.0", "boxed"),
     ("::", "boxed"), ("10.0.0.1", "boxed"), ("center.example", "boxed")],
)  # fmt: skip
def test_only_a_center_of_this_machine_alone_may(host: str, code: str) -> None:
    """S7: others could call it; and `never` stays `never`."""
    settings = with_local_code(Settings(center=CenterSettings(host=host)))
    assert (settings.jobs.code, settings.agent.code) == (code, code)
    never = Settings(
        center=CenterSettings(host=host),
        jobs=JobsSettings(code="never"),
        agent=AgentSettings(code="never"),
    )
    assert with_local_code(never) == never


async def test_a_center_refuses_generators_with_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S7: as it refuses spiders; with `jobs.code` it runs them and warns."""
    monkeypatch.setenv("PATH", str(tmp_path))
    order = SandboxRequest("python", YIELDS)
    with pytest.raises(GeneratorFailed, match=r"bubblewrap is not installed.*jobs\.code"):
        _ = [batch async for batch in CodeSandboxes(EgressPolicy(), SystemClock(), 1).run(order)]
    allowed = CodeSandboxes(EgressPolicy(), SystemClock(), 1, "always")
    assert [batch async for batch in allowed.run(order)] == [["http://a.example/"]]
    assert "without a sandbox" in caplog.text
