"""Spellings of this machine's address that a filter by name would accept."""

from __future__ import annotations

_TEXT = """
127.0.0.1 127.1 0x7f.1 2130706433 0177.0.0.1 0x7f000001 0.0.0.0 127.0.0.1. localhost LOCALHOST
①②⑦.0.0.1 127。0。0。1 [::ffff:127.0.0.1] [::127.0.0.1] [0:0:0:0:0:ffff:7f00:1]
"""
LOOPBACK_SPELLINGS = tuple(_TEXT.split())
