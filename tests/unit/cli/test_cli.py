"""The command line without processes: its table, its words, its figures."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import click
import pytest

from skep import errors
from skep.cli.commands.crawl import request_batches as batches_module
from skep.cli.commands.crawl.request_batches import batches
from skep.cli.commands.operate.doctor import line_of
from skep.cli.main import COMMANDS, GROUPS, run, skep
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.exit_codes import MEANINGS, ExitCode, code_of
from skep.cli.terminal.line_wrapping import cell_lines, widths_for, wrapped
from skep.cli.terminal.output import age, harmless_lines, table
from skep.cli.terminal.progress import Progress
from skep.cli.terminal.settings_options import read_settings
from skep.cli.terminal.short_ids import matching, short_forms
from skep.embed.center_address import CenterAddress, addresses, find_token
from skep.embed.checks.examination import (
    data_folder,
    newest_segment,
    python,
    readiness,
    token_files,
)
from skep.embed.checks.network import network, resolve
from skep.errors import ConfigurationError, InvalidInput, NotAUrl
from skep.model.request import NewRequest
from skep.runtime.logging import ForPeople, JsonLines, start_logging
from skep.testing.clock import ManualClock
from skep.wire.api.health import Check, Ready


def command_of(name: str) -> click.Command:
    found = skep.get_command(click.Context(skep), name)
    assert found is not None
    return found


def all_commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = command_of(name)
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", below) for sub, below in command.commands.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    """`skep --help` reads the table, so that it need not import every command."""
    command = command_of(name)
    assert command.name == name
    first = (command.help or "").split("\n\n")[0].replace("\n", " ")
    assert first == COMMANDS[name]


def test_every_option_has_a_help_text() -> None:
    silent = [
        f"{name} {parameter.name}"
        for name, command in all_commands()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not (parameter.help or "").endswith(".")
    ]
    assert silent == []


def test_commands_that_print_data_can_print_json() -> None:
    prints = {"demo", "demo break", "submit", "info", "runs", "agents", "doctor", "version"}
    able = {
        name for name, command in all_commands() if any(p.name == "as_json" for p in command.params)
    }
    assert prints <= able


def test_help_imports_no_command() -> None:
    """What makes `skep --help` fast: no command, no msgspec, no asyncio before it answers."""
    code = (
        "import sys; from skep.cli.main import run; run(['--help']);"
        "print([m for m in ('msgspec', 'asyncio', 'rich', 'aiohttp', 'sqlalchemy',"
        " 'skep.cli.commands.crawl.up') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_exit_code_is_explained() -> None:
    assert set(MEANINGS) == set(ExitCode)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotAUrl("x"), 2),
        (errors.OldProtocol("x"), 2),
        (errors.ConfigurationError("x"), 2),
        (errors.UnknownRun("x"), 3),
        (errors.Unauthorized("x"), 4),
        (errors.Forbidden("x"), 4),
        (errors.StaleToken("x"), 5),
        (errors.CenterUnreachable("x"), 6),
        (errors.DiskFull("x"), 6),
        (errors.SkepError("x"), 1),
    ],
)
def test_an_error_has_the_exit_code_of_its_kind(error: errors.SkepError, code: int) -> None:
    assert code_of(error) == code


def test_wrong_usage_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nonsense"]) == 2
    assert "is not a command; the commands are up, demo" in capsys.readouterr().err
    assert run(["submit", "r1"]) == 2
    assert "FILE is missing" in capsys.readouterr().err
    assert run(["submit", "r1", "-", "--retries", "3"]) == 2
    assert "add --new" in capsys.readouterr().err


def test_batches_know_their_lines() -> None:
    source = [b"http://a/\n", b"\n", b"# a comment\n", b'{"uri": "http://b/", "priority": 1}\n']
    (batch,) = batches(source)
    assert batch.items == ["http://a/", NewRequest("http://b/", priority=1)]
    assert batch.lines == [1, 4]


def test_batches_are_cut_by_count_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "BATCH", 2)
    assert [len(batch.items) for batch in batches([b"http://a/"] * 5)] == [2, 2, 1]
    monkeypatch.setattr(batches_module, "BATCH_BYTES", 5)
    assert [len(batch.items) for batch in batches([b"http://a/"] * 3)] == [1, 1, 1]


@pytest.mark.parametrize("line", [b'{"uri": 3}', b'{"uri"', b'{"uri": "a", "oops": 1}', b"\xff"])
def test_a_bad_line_is_named(line: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^line 2: "):
        list(batches([b"http://a/", line]))


def test_the_place_in_a_batch_becomes_the_line_of_the_input() -> None:
    (batch,) = batches([b"", b"http://a/", b"", b"nonsense"])
    explained = batch.explain(NotAUrl("request 1: 'nonsense' is not a URL"))
    assert isinstance(explained, NotAUrl)
    assert explained.detail == "line 4: 'nonsense' is not a URL"
    other = InvalidInput("something else")
    assert batch.explain(other) is other


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    clock, stream = ManualClock(), StringIO()
    progress = Progress(stream, clock)
    for ended in (100, 400, 612):
        clock.advance(1.0)
        progress.update(ended, 1000, 0)
    progress.note("something happened")
    progress.end()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "400/1000 · 200 p/s · 0 failed · eta 3s"
    assert lines[1:] == ["something happened", "612/1000 · 204 p/s · 0 failed · eta 2s"]
    assert "\x1b" not in stream.getvalue()


def test_progress_shows_the_speed_of_now_and_in_the_end_of_the_whole() -> None:
    clock, stream = ManualClock(), StringIO()
    progress = Progress(stream, clock)
    for ended in (500, 500, 500, 1000):
        clock.advance(4.0)
        progress.update(ended, 1000, 0)
    progress.end()
    shown = [line.split(" · ") for line in stream.getvalue().splitlines()]
    assert [rate for _, rate, _, _ in shown[:3]] == ["125 p/s", "0 p/s", "0 p/s"]
    assert [eta for *_, eta in shown[:3]] == ["eta 4s", "eta ?", "eta ?"]
    assert [rate for _, rate, _, _ in shown[3:]] == ["62 p/s"], "said once, not again at the end"


def test_a_table_is_neither_boxed_nor_cut() -> None:
    long = "x" * 300
    assert table(("A", "BB"), [(1, long), ("22", "y")]) == f"A   BB\n1   {long}\n22  y"


def test_what_others_wrote_moves_no_cursor() -> None:
    """Hostile content is shown as text: no escapes, no bells, no turned lines."""
    evil = "a\x1b[2J\u202e\x9bb"
    assert table(("X",), [(evil,)]) == "X\na\\x1b[2J\\u202e\\x9bb"
    assert harmless_lines(b"\xff\x1b]0;t\x07\r\nb\tc") == "\\xff\\x1b]0;t\\x07\nb       c"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (9.9, "9.9 s"), (60, "60 s"), (300, "5 min"), (8000, "2 h"), (400000, "5 d")],
)
def test_ages_have_the_unit_that_people_use(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_flags_win_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "skep.toml"
    file.write_text("[center]\nport = 1\nhost = '::1'\n[agent]\ngroup = 'file'\n")
    monkeypatch.setenv("SKEP_CENTER_PORT", "2")
    monkeypatch.setenv("SKEP_AGENT_GROUP", "environment")
    chosen = ("center.port=3", "egress.allow=10.0.0.0/8,::1/128")
    settings = read_settings(file, tmp_path, chosen, {"center.port": 4, "agent.name": None})
    assert (settings.center.port, settings.center.host) == (4, "::1")
    assert settings.agent.group == "environment"
    assert settings.egress.allow == ("10.0.0.0/8", "::1/128")
    assert settings.data == str(tmp_path)


@pytest.mark.parametrize("text", ["center.prot=1", "nonsense", "=1", "center=1"])
def test_a_setting_that_is_none_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError, match="--set"):
        read_settings(None, None, (text,))


def test_where_the_center_is(tmp_path: Path) -> None:
    assert addresses("http://a:1,b:2", tmp_path) == ["http://a:1", "http://b:2"]
    with pytest.raises(errors.CenterUnreachable, match="skep up"):
        addresses(None, tmp_path)
    (tmp_path / "center.url").write_text("http://127.0.0.1:1\n")
    assert addresses(None, tmp_path) == ["http://127.0.0.1:1"]


def test_the_nearer_of_two_places_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`skep runs --center A pause r` and `skep runs pause r --center A` mean the same."""
    seen: list[CenterAddress] = []

    @click.group()
    @calls_center
    @click.pass_context
    def outer(context: click.Context, reach: CenterAddress) -> None:
        context.obj = reach

    @outer.command()
    @calls_center
    def inner(reach: CenterAddress) -> None:
        seen.append(reach)

    def centers(*arguments: str) -> str | None:
        outer.main(list(arguments), standalone_mode=False)
        return seen[-1].center

    monkeypatch.setenv("SKEP_CENTER", "environment")
    assert centers("inner") == "environment"
    assert centers("--center", "far", "inner") == "far"
    assert centers("--center", "far", "inner", "--center", "near") == "near"
    assert centers("--data", str(tmp_path), "inner") == "environment"
    assert seen[-1].data == tmp_path


def test_a_file_that_cannot_be_used_is_named() -> None:
    command = [sys.executable, "-m", "skep", "center", "--data", "/proc/nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: /proc/nothing: No such file or directory\n"


def test_which_token_is_used(tmp_path: Path) -> None:
    kept = tmp_path / "admin.token"
    assert find_token(None, kept) == ""
    kept.write_text("kept\n")
    assert find_token(None, kept) == "kept"
    with pytest.raises(ConfigurationError, match="cannot read"):
        find_token(tmp_path / "absent", kept)


def test_the_doctor_finds_what_is_wrong_here(tmp_path: Path) -> None:
    assert python((3, 11, 0)).ok
    assert not python((3, 10, 9)).ok
    assert data_folder(tmp_path).ok
    assert "skep up" in data_folder(tmp_path / "absent").fix
    token = tmp_path / "admin.token"
    token.write_text("x")
    token.chmod(0o644)
    (finding,) = token_files(tmp_path)
    assert not finding.ok
    assert finding.fix == f"chmod 600 {token}"


def test_the_doctor_opens_the_newest_segment(tmp_path: Path) -> None:
    assert list(newest_segment(tmp_path / "absent")) == []
    (tmp_path / "center-1-00000001.warc.zst").write_bytes(b"not zstd")
    (finding,) = newest_segment(tmp_path)
    assert not finding.ok


def test_the_doctor_hands_on_what_the_center_says_of_itself() -> None:
    checks = [Check("store", True, "sqlite"), Check("bus", False, "no answer")]
    store, bus = readiness(Ready("not ready", checks))
    assert store.ok
    assert (bus.name, bus.ok, bus.detail) == ("center's bus", False, "no answer")
    assert "bus.url" in bus.fix


def record(level: int = logging.INFO, error: Exception | None = None) -> logging.LogRecord:
    trace = (type(error), error, None) if error else None
    return logging.LogRecord("skep.x", level, "", 0, "block %d", (7,), trace)


def test_log_lines_for_programs_and_for_people() -> None:
    line = json.loads(JsonLines().format(record(error=ValueError("why"))))
    assert (line["level"], line["logger"], line["message"]) == ("info", "skep.x", "block 7")
    assert line["at"].endswith("+00:00")
    assert "ValueError: why" in line["exception"]
    assert ForPeople().format(record()).endswith(" block 7")
    assert ForPeople().format(record(logging.WARNING)).endswith(" warning: block 7")


def test_loggers_of_others_are_quiet() -> None:
    root = logging.getLogger()
    ours = logging.getLogger("skep")
    before = (root.handlers[:], root.level, ours.level)
    stream = StringIO()
    try:
        start_logging(stream, logging.INFO)
        logging.getLogger("uvicorn.error").info("a call")
        logging.getLogger("skep.center").info("open")
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["open"]


@pytest.mark.parametrize(
    ("word", "meant"), [("sumbit", "submit"), ("agnets", "agent"), ("doctr", "doctor")]
)
def test_a_typo_gets_a_suggestion(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """U7: the nearest command is named."""
    assert run([word]) == 2
    assert f"{word!r} is not a command; did you mean {meant}" in capsys.readouterr().err
    assert run(["runs", "pasue"]) == 2
    assert "has no command 'pasue'; did you mean 'pause'?" in capsys.readouterr().err


def test_every_command_is_in_one_group() -> None:
    assert sum(len(group) for group in GROUPS.values()) == len(COMMANDS)
    known = ["Crawl", "Jobs", "Results", "Fleet", "People", "Operate", "Develop"]
    assert list(GROUPS) == known


def test_text_is_wrapped_between_words_and_under_its_label() -> None:
    """U7: a longer word keeps a line of its own."""
    assert wrapped("ok     one two three", 15) == "ok     one two\n       three"
    assert wrapped("12345678901234567890 x", 10) == "12345678901234567890\nx"
    assert wrapped("short", 80) == wrapped("short", None) == "short"


def test_cells_keep_to_their_column() -> None:
    assert cell_lines("a few words", 5) == ["a few", "words"]
    assert cell_lines("http://a.example/a/long/path", 12) == ["http://a…ath"[:12]]
    assert widths_for([["A", "TEXT"], ["1", "x" * 50]], 30) == [1, 27]
    assert widths_for([["HEAD"] * 9, ["x" * 30] * 9], 40) is None


def test_short_ids_and_the_way_back() -> None:
    """U7: short forms are told apart, and one that fits several ids is refused."""
    ids = ["quotes-06gub8v6bdvhgtp9", "quotes-06gub8v6bdvhatp9", "pages"]
    forms = short_forms(ids)
    assert forms == {ids[0]: "quotes..gtp9", ids[1]: "quotes..atp9", "pages": "pages"}
    assert [matching(form, ids) for form in forms.values()] == list(forms)
    twins = ["quotes-06gub8v6bdvhgtp9", "quotes-07gub8v6bdvhgtp9"]
    assert len(set(short_forms(twins).values())) == 2
    with pytest.raises(InvalidInput, match="matches 2 ids; use one of quotes-06gub8v6bdvhgtp9"):
        matching("quotes..gtp9", twins)
    assert matching("other..gtp9", ids) == "other..gtp9"
    assert matching("agent..gtp9.2", ["agent-06gub8v6bdvhgtp9.2"]) == "agent-06gub8v6bdvhgtp9.2"


@pytest.mark.parametrize("problem", ["", "Temporary failure in name resolution"])
def test_the_doctor_looks_at_the_network(problem: str) -> None:
    """U4: a machine that cannot resolve names is not all green."""
    route, dns = network(lambda _name: problem)
    assert route.name == "route"
    assert (dns.ok, dns.warning, problem in dns.detail) == (not problem, bool(problem), True)
    shown = click.unstyle(line_of(dns))
    assert shown.startswith("warn" if problem else "ok")
    assert ("resolv.conf" in shown) is bool(problem)


def test_a_name_that_does_not_exist_has_a_reason() -> None:
    """U4: `.invalid` never resolves, with or without a network."""
    assert resolve("skep.invalid")
    assert resolve("localhost") == ""
