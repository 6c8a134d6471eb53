"""Reads and writes the cookie jar that libcurl handles share. Runs in a downloader's thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pycurl


def cookies_in(share: Any) -> list[str]:
    """The cookies of a CurlShare, one line for each."""
    curl = _with_jar(share)
    try:
        lines: list[str] = curl.getinfo(pycurl.INFO_COOKIELIST)
        return lines
    finally:
        curl.close()


def put_cookies(share: Any, lines: Iterable[str]) -> None:
    """Add cookies to a CurlShare."""
    curl = _with_jar(share)
    try:
        for line in lines:
            curl.setopt(pycurl.COOKIELIST, line)
    finally:
        curl.close()


def _with_jar(share: Any) -> Any:
    curl = pycurl.Curl()
    curl.setopt(pycurl.SHARE, share)
    curl.setopt(pycurl.COOKIEFILE, "")
    return curl
