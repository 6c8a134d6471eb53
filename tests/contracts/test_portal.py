"""The portal's texts are complete in every language, and its templates hold no others."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from skep.portal.assets_table import package_assets
from skep.portal.preferences import LANGUAGES
from skep.portal.registry import pages
from skep.portal.texts import Entry, entries_of

PORTAL = Path(__file__).parents[2] / "skep" / "portal"
TEMPLATES = sorted((PORTAL / "templates").rglob("*.html"))
MODULES = sorted((PORTAL / "assets").glob("*.js"))
#: Text keys in templates and code: `t("file.key")` and `"file.key"`.
_USED = re.compile(r"""\bt\(\s*["']([a-z_]+\.[a-z0-9_]+)["']\s*[,)]""")
_IN_CODE = re.compile(r"""["']([a-z_]+\.[a-z_]+)["']""")
#: Words that are the same in every language: names, units, code.
_PLAIN = {
    "Skep",
    "Ctrl K",
    "Ctrl",
    "K",
    "Enter",
    "j",
    "k",
    "x",
    "p",
    "g",
    "skep user link admin",
    "\N{MULTIPLICATION SIGN}",
    "·",
    "/",
    "?",
}


#: Names of series, which look like keys.
_SERIES = {"requests.done", "requests.failed"}
#: They answer modules, or only switch something.
WITHOUT_TITLE = {"app_lines", "complete", "counts", "find", "lines", "preferences", "views"}


def test_every_language_has_every_text() -> None:
    """P4: one catalogue per language, complete."""
    expected = set(entries_of("en"))
    for language in LANGUAGES:
        assert set(entries_of(language)) == expected, language


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_placeholders_are_those_of_english(language: str) -> None:
    english = entries_of("en")
    for key, entry in entries_of(language).items():
        assert _fields(entry) <= _fields(english[key]), key
        assert entry, key


def _fields(entry: Entry) -> set[str]:
    texts = [entry] if isinstance(entry, str) else list(entry.values())
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name}


def test_every_used_text_exists() -> None:
    known = set(entries_of("en"))
    files = {key.partition(".")[0] for key in known}
    for path in TEMPLATES:
        for key in _USED.findall(path.read_text()):
            assert key in known, f"{path.name}: {key}"
    for path in sorted((PORTAL / "pages").rglob("*.py")):
        for key in _IN_CODE.findall(path.read_text()):
            if key.partition(".")[0] in files and not key.endswith(".html") and key not in _SERIES:
                assert key in known, f"{path.name}: {key}"


def test_every_page_has_a_title() -> None:
    known = set(entries_of("en"))
    shown = {page.name for page in pages()} - WITHOUT_TITLE
    assert {f"{name}.title" for name in shown} <= known


def test_every_key_and_place_of_the_side_bar_is_used_once() -> None:
    """P4: `g` and a letter lead to one page; names do not decide the order of the side bar."""
    places = [page.nav for page in pages() if page.nav is not None]
    keys = [place.key for place in places if place.key]
    assert len(keys) == len(set(keys)), sorted(keys)
    orders = [(place.group, place.order) for place in places]
    assert len(orders) == len(set(orders)), sorted(orders)


def test_every_text_of_a_module_exists() -> None:
    known = {key for key in entries_of("en") if key.startswith("script.")}
    for path in MODULES:
        for key in re.findall(r"""\btext\("([a-z_]+)\"""", path.read_text()):
            assert f"script.{key}" in known, f"{path.name}: {key}"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_holds_no_text_of_its_own(path: Path) -> None:
    bare = re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}", " ", path.read_text(), flags=re.DOTALL)
    bare = re.sub(r"<script.*?</script>|<style.*?</style>", " ", bare, flags=re.DOTALL)
    attributes = re.findall(
        r'\b(?:title|aria-label|placeholder|alt)="([^"]*[A-Za-z]{2}[^"]*)"', bare
    )
    assert not attributes, attributes
    words = {text.strip() for text in re.findall(r">([^<]+)<", bare)} - {""}
    others = {word for word in words if re.search(r"[A-Za-z\u4e00-\u9fff]", word)} - _PLAIN
    assert not {word for word in others if word.strip("· ") not in _PLAIN}, others


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_inline_script_or_style(path: Path) -> None:
    """The content policy would block them."""
    text = path.read_text()
    assert not re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:", text)
    assert "|safe" not in text.replace(" ", "")
    assert "autoescape" not in text


def test_assets_have_names_that_change_with_their_content() -> None:
    assets = package_assets()
    path = assets.path("portal.js")
    found = assets.find(path.rpartition("/")[2])
    assert found is not None
    assert found[1]
    assert f'from "./live.{assets.mark}.js"'.encode() in found[0].content
    assert assets.find("portal.000000000000.js") is not None
    assert assets.find("../page.py") is None


def test_modules_load_nothing_from_elsewhere() -> None:
    for path in sorted((PORTAL / "assets").iterdir()):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path.name
        assert "https://" not in text, path.name
        assert "innerHTML =" not in text, path.name
        assert "eval(" not in text, path.name
