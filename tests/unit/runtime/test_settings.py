"""Settings: four sources, one order, and errors that name the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep import settings
from skep.errors import ConfigurationError
from skep.settings import Settings, StoreSettings, load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "skep.toml"
    path.write_text('data = "from-file"\n[center]\nport = 1001\nhost = "127.0.0.2"\n')
    return path


def test_without_any_source_the_defaults_count() -> None:
    assert load() == Settings()


def test_the_defaults_are_those_of_the_founding_documents() -> None:
    """C3: 11 s and 15 s. D3: lanes of 1000, 1000, 2000, 3000. D4: 7,000 in one dispatch."""
    defaults = Settings()
    lanes = defaults.lanes
    limits = (lanes.super_limit, lanes.high_limit, lanes.mid_limit, lanes.low_limit)
    assert (defaults.center.alive_after, defaults.center.roster_every) == (11.0, 15.0)
    assert limits == (1000, 1000, 2000, 3000)
    assert lanes.dispatch_limit == 7000


def test_a_center_is_closed_to_others_until_it_is_opened() -> None:
    assert (Settings().center.host, Settings().center.auth) == ("127.0.0.1", True)


def test_later_sources_win(file: Path) -> None:
    """Defaults, then the file, then the environment, then flags."""
    environment = {"SKEP_CENTER_PORT": "1002", "SKEP_STORE_READERS": "3"}
    loaded = load(file, environment, {"store.readers": 4})
    assert loaded.center.host == "127.0.0.2"
    assert loaded.center.port == 1002
    assert loaded.store.readers == 4
    assert loaded.lanes == Settings().lanes


def test_a_flag_that_was_not_given_changes_nothing(file: Path) -> None:
    assert load(file, flags={"center.port": None, "data": None}).center.port == 1001


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("0", False)])
def test_the_environment_is_text_and_becomes_what_the_field_needs(text: str, value: bool) -> None:
    assert load(environment={"SKEP_CENTER_AUTH": text}).center.auth is value


def test_lists_are_written_with_commas_in_the_environment() -> None:
    loaded = load(environment={"SKEP_EGRESS_ALLOW": "127.0.0.0/8,::1/128"})
    assert loaded.egress.allow == ("127.0.0.0/8", "::1/128")


def test_an_empty_list_can_be_given_in_the_environment() -> None:
    assert load(environment={"SKEP_EGRESS_ALLOW": ""}).egress.allow == ()


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://skep:secret@db/skep\n")
    loaded = load(environment={"SKEP_STORE_URL_FILE": str(secret)})
    assert loaded.store_url == "postgresql://skep:secret@db/skep"


def test_the_variable_itself_wins_over_its_file(tmp_path: Path) -> None:
    environment = {"SKEP_STORE_URL": "sqlite:///x", "SKEP_STORE_URL_FILE": str(tmp_path / "none")}
    assert load(environment=environment).store_url == "sqlite:///x"


def test_store_and_archive_live_in_the_data_folder_unless_told_otherwise() -> None:
    loaded = load(environment={"SKEP_DATA": "somewhere"})
    assert loaded.store_url == "sqlite:///somewhere/skep.db"
    assert loaded.archive_url == "somewhere/archive"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"SKEP_CENTER_PORT": "70000"}, ("65535", "center.port")),
        ({"SKEP_CENTER_PORT": "http"}, ("a whole number", "center.port")),
        ({"SKEP_AGENT_CONCURRENCY": "0"}, ("1", "agent.concurrency")),
        ({"SKEP_LANES_FLOOR_EVERY": "3"}, ("4", "lanes.floor_every")),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_by_name(
    environment: dict[str, str], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment=environment)
    assert all(word in caught.value.detail for word in words)


def test_an_unknown_field_in_a_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "skep.toml"
    file.write_text("[center]\nprot = 8420\n")
    with pytest.raises(ConfigurationError, match="prot"):
        load(file)


def test_an_unknown_room_in_a_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "skep.toml"
    file.write_text("[centre]\nport = 8420\n")
    with pytest.raises(ConfigurationError, match="centre"):
        load(file)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*nothing\.toml"):
        load(tmp_path / "nothing.toml")


def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "skep.toml"
    file.write_text("port: 1\n")
    with pytest.raises(ConfigurationError, match="is not valid TOML"):
        load(file)


def test_a_secret_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    environment = {"SKEP_STORE_URL_FILE": str(tmp_path / "nothing")}
    with pytest.raises(ConfigurationError, match="SKEP_STORE_URL_FILE"):
        load(environment=environment)


def test_a_room_that_is_given_as_a_value_is_refused(tmp_path: Path) -> None:
    """`center = 1` in the file and a variable for a field of it: an error, not a crash."""
    file = tmp_path / "skep.toml"
    file.write_text("center = 1\n")
    with pytest.raises(ConfigurationError, match="center"):
        load(file, {"SKEP_CENTER_PORT": "1"})


def test_variables_of_others_do_no_harm() -> None:
    assert load(environment={"SKEP_SOMETHING_ELSE": "1", "PATH": "/bin"}) == Settings()


def test_every_setting_has_a_variable_of_its_own() -> None:
    names = [f"{room}_{field}" for room, field, *_ in settings.documented()]
    assert len(names) == len(set(names))


def test_a_data_folder_that_a_database_url_cannot_hold_is_refused() -> None:
    """`sqlite:///a?b/skep.db` would be the file `a` with an option."""
    with pytest.raises(ConfigurationError, match=r"'a\?b' has a '\?' in its name"):
        _ = Settings(data="a?b").store_url
    elsewhere = Settings(data="a?b", store=StoreSettings(url="sqlite:///c.db"))
    assert elsewhere.store_url == "sqlite:///c.db"
