"""What the pages tell people to type is good: commands, options, settings, jobs, routes, links."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import msgspec

from skep import settings
from skep.center.app import api_table
from skep.cli.main import skep
from skep.jobs.definitions.job_check import linter
from skep.model.jobs.documents import read_documents

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"),
]
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}(?:\S*/)?(skep .*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
#: A line of a shell: variables and a folder may stand before the command.
COMMAND = re.compile(r"^(?:\$ +)?(?:\S+=\S+ +)*(?:\S*/)?(skep(?: .*)?)$")
AFTER = {"&", ">", "<", "..."}
HELP = {"-h", "--help", "--version"}
#: They look like settings, and are files of a data folder.
FILES = {"agent.token", "agent.name", "center.lock", "center.url", "center.name"}
#: Variables beside the settings: of commands, of the box of user code, of applications, of tests.
MORE_VARIABLES = {
    *("SKEP_DATA", "SKEP_CENTER", "SKEP_TOKEN_FILE", "SKEP_JOIN_TOKEN"),
    *("SKEP_URI", "SKEP_METHOD", "SKEP_HEADERS", "SKEP_META", "SKEP_ARGUMENTS", "SKEP_ARG_NAME"),
    *("SKEP_RUN", "SKEP_INSTANCE", "SKEP_AGENT", "SKEP_TESTS_SEED"),
}
#: What a part of a job's document lacks.
SOMETHING = {"name": "part", "requests": ["https://shop.example/"]}
DOCUMENTED = [(room, field) for room, field, *_ in settings.documented()]


def over_all_pages(wrong: Callable[[Path], Iterable[object]]) -> dict[str, list[object]]:
    """What is wrong on each page, for those where something is."""
    found = {str(page.relative_to(ROOT)): list(wrong(page)) for page in PAGES}
    return {name: faults for name, faults in found.items() if faults}


def prose_of(page: Path) -> str:
    """Without blocks of code; what goes over the end of a line is on one line."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", FENCED.sub("", page.read_text()))


def lines_of_shells(page: Path) -> Iterator[str]:
    for kind, block in FENCED.findall(page.read_text()):
        if kind in {"sh", "bash", "console"}:
            for line in block.replace("\\\n", " ").splitlines():
                yield from (part.strip() for part in re.split(r"[|;]", line))
        else:
            lines = (line.strip() for line in block.splitlines())
            yield from (line for line in lines if line.startswith("$ skep "))
    yield from INDENTED.findall(FENCED.sub("", page.read_text()))


def commands_of(page: Path) -> Iterator[str]:
    """All that begins with `skep`, in blocks and in the running text."""
    typed = [*lines_of_shells(page), *INLINE.findall(prose_of(page))]
    return (match[1] for line in typed if (match := COMMAND.match(line)))


def words_of(line: str) -> list[str]:
    """Of the command alone, without the word `skep`."""
    words = shlex.split(line, comments=True)
    ends = [number for number, word in enumerate(words) if word in AFTER]
    return words[1 : min(ends, default=len(words))]


def options_of(command: click.Command) -> dict[str, click.Parameter]:
    return {name: one for one in command.params for name in (*one.opts, *one.secondary_opts)}


def takes_a_word(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and not (option.is_flag or option.count)


def complaint_about(words: list[str]) -> str:
    """What the program would not know of this command line; nothing of it is run."""
    command: click.Command = skep
    options = options_of(skep)
    left = iter(words)
    for word in left:
        name, _, value = word.partition("=")
        if name in options:
            if takes_a_word(options[name]) and not value:
                next(left, None)
        elif name.startswith("-") and name != "-":
            if name not in HELP:
                return f"no option {name}"
        elif isinstance(command, click.Group) and word != "COMMAND":
            found = command.get_command(click.Context(command), word)
            if found is None:
                return f"no command {word}"
            command, options = found, options | options_of(found)
    return ""


def alike(path: str, route: str) -> bool:
    """Segment by segment; a parameter stands for anything, on either side."""
    pairs = zip(path.split("/"), route.split("/"), strict=False)
    same = all(ours == theirs or "{" in ours + theirs for ours, theirs in pairs)
    return same and path.count("/") == route.count("/")


def test_commands_and_options_exist() -> None:
    def unknown(page: Path) -> Iterator[object]:
        said = {line: complaint_about(words_of(line)) for line in commands_of(page)}
        return ((line, fault) for line, fault in said.items() if fault)

    assert sum(len(list(commands_of(page))) for page in PAGES) > 150, "commands are not found"
    assert over_all_pages(unknown) == {}


def test_this_test_would_see_a_command_that_is_gone() -> None:
    assert complaint_about(["agents", "show", "ID", "--json"]) == ""
    assert complaint_about(["agents", "banish", "ID"]) == "no command banish"
    assert complaint_about(["agent", "--group", "eu", "--tribe", "x"]) == "no option --tribe"


def test_settings_exist() -> None:
    known = {f"{room}.{field}" for room, field in DOCUMENTED} | FILES
    setting = rf"(?:{'|'.join(settings.SECTIONS)})\.[a-z_]+"

    def unknown(page: Path) -> set[str]:
        named = re.findall(rf"`({setting})(?:`|=)", prose_of(page))
        return {*named, *re.findall(rf"--set ({setting})=", page.read_text())} - known

    assert over_all_pages(unknown) == {}


def blocks_of(page: Path, kind: str) -> Iterator[str]:
    found = FENCED.findall(page.read_text())
    return (textwrap.dedent(block) for one, block in found if one == kind)


def test_jobs_are_good() -> None:
    """As `skep job lint` reads them; a part of a document is made a whole one."""

    def faults(page: Path) -> Iterator[object]:
        for block in blocks_of(page, "yaml"):
            for document in read_documents(block, page.name):
                work = {"requests", "generators", "spider", "app"} & set(document)
                yield from linter().judge(document if work else SOMETHING | document)[1]

    assert over_all_pages(faults) == {}


def test_settings_files_are_good() -> None:
    def wrong(page: Path) -> Iterator[object]:
        for block in blocks_of(page, "toml"):
            if "[project" not in block:  # a user's package, not our settings
                try:
                    msgspec.convert(tomllib.loads(block), settings.Settings, strict=False)
                except (ValueError, msgspec.ValidationError) as error:
                    yield str(error)

    assert over_all_pages(wrong) == {}


def test_variables_exist() -> None:
    known = {f"SKEP_{room}_{field}".upper() for room, field in DOCUMENTED}
    known |= {f"{name}_FILE" for name in known} | MORE_VARIABLES

    def unknown(page: Path) -> set[str]:
        return set(re.findall(r"\bSKEP_[A-Z_]+[A-Z]\b", page.read_text())) - known

    assert over_all_pages(unknown) == {}


def test_routes_exist() -> None:
    table = [(row.method, row.path) for row in api_table()]

    def unknown(page: Path) -> Iterator[object]:
        for method, path in re.findall(r"\b([A-Z]+) (/[^\s`?,\"]+)", page.read_text()):
            if not any(method == one and alike(path, route) for one, route in table):
                yield method, path

    assert over_all_pages(unknown) == {}


def test_links_lead_somewhere() -> None:
    def broken(page: Path) -> Iterator[object]:
        targets = re.findall(r"\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        return (target for target in targets if not (page.parent / target).exists())

    assert over_all_pages(broken) == {}
