"""Faults: what failures have in common, and what tells them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.errors import ConfigurationError
from skep.jobs.endings.notices import hidden_target, is_mail_address, problems_of, read_secret
from skep.model.failures.failure_fingerprint import (
    failure_fingerprint,
    group_name,
    parse_group,
    without_particulars,
)
from skep.model.jobs.notice import NoticeRule

ALIKE = [
    ("timed out after 31 ms", "timed out after 2,004.5 ms", "timed out after N ms"),
    (
        "connect to 10.0.0.1:443 failed",
        "connect to 192.0.2.77:80 failed",
        "connect to <address> failed",
    ),
    ("connect to [2001:db8::1]:443", "connect to [fe80::42:1]:8", "connect to <address>"),
    ("no key 'a b'", 'no key "c"', "no key '...'"),
    ("at 0xdeadbeef", "at 0x1", "at <hex>"),
    ("digest 9f86d081884c7d65", "digest 60303ae22b998861", "digest <hex>"),
    ("see https://a.example/x?y=1 now", "see http://b/ now", "see <url> now"),
    ("  two\twords ", "two words", "two words"),
]


@pytest.mark.parametrize(("one", "other", "common"), ALIKE)
def test_particulars_do_not_tell_faults_apart(one: str, other: str, common: str) -> None:
    assert without_particulars(one) == without_particulars(other) == common
    assert failure_fingerprint("network", 0, one) == failure_fingerprint("network", 0, other)


def test_words_class_and_status_do() -> None:
    faults = [
        failure_fingerprint("network", 0, "refused"),
        failure_fingerprint("network", 0, "reset"),
        failure_fingerprint("timeout", 0, "refused"),
        failure_fingerprint("status", 503, "refused"),
    ]
    assert len({fault.id for fault in faults}) == 4
    assert all(0 < fault.id < 2**48 for fault in faults)


def test_plain_words_that_look_like_hex_stay() -> None:
    assert without_particulars("a decade of facade") == "a decade of facade"


def test_a_long_detail_is_cut_and_a_hostile_one_costs_little() -> None:
    assert len(without_particulars("word " * 1000)) == 300
    assert without_particulars("'" * 1000 + ":" * 1000) != ""


def test_names_of_groups_lead_back() -> None:
    assert parse_group(group_name(0xABC, "host.example")) == (0xABC, "host.example")
    assert parse_group("abc") == (0xABC, None)
    for wrong in ("", "@host", "xyz@host", "0" * 13):
        with pytest.raises(ValueError, match="is not a group"):
            parse_group(wrong)


def test_rules_of_notices_are_checked() -> None:
    """Fault 70: nothing that could end a line of a mail or of a call."""
    assert problems_of(NoticeRule(webhook="https://hooks.example/x")) == ""
    assert problems_of(NoticeRule(mail="ann@example.com")) == ""
    bad = [
        NoticeRule(),
        NoticeRule(webhook="https://x/", mail="a@b"),
        NoticeRule(webhook="file:///etc/passwd"),
        NoticeRule(webhook="https://x/\r\nHost: y"),
        NoticeRule(mail="a@b>\r\nRCPT TO:<c@d"),
        NoticeRule(mail="nobody"),
    ]
    assert all(problems_of(rule) for rule in bad)
    assert not is_mail_address("Ann <a@b>")


def test_a_webhook_is_shown_without_its_path() -> None:
    assert hidden_target("https://u:p@hooks.example:8/T0/key?x=1") == "https://hooks.example/***"
    assert hidden_target("ann@example.com") == "ann@example.com"


def test_secrets_are_read_by_name_alone(tmp_path: Path) -> None:
    """Fault 51: a name leads nowhere else, and an error says nothing of what was read."""
    (tmp_path / "outside").write_text("x")
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "key").write_text("s3cret\n")
    (folder / "empty").write_text("\n")
    assert read_secret(folder, "key") == b"s3cret"
    assert read_secret(folder, "") == b""
    for name in ("../outside", "none", "empty"):
        with pytest.raises(ConfigurationError):
            read_secret(folder, name)
