"""What a piece may contain, in about a hundredth of its size: a bitmap of hashed n-grams. Pure.

A search asks it before it decompresses a piece. It may report a text that the piece does not
contain, and never misses one that it contains. ASCII words are cut into three letters each, without
regard to case; digits are left out, because every piece contains all short numbers anyway. Other
scripts are cut into characters and pairs of characters, so that a word of two is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from zlib import crc32

_SIZE = 3
#: Bits per n-gram at least (twice that at most), and bounds of a summary in bits.
_ROOM = 4
_FEWEST, _MOST = 512, 2**18
#: Odd numbers without a pattern: they spread letters and pairs over the low bits of a hash.
_LETTER, _FIRST = 2_654_435_761, 40_503
_OTHER_SCRIPTS = re.compile(r"[^\x00-\x7f]+")
_ASCII_WORDS = re.compile(r"[!-\x7f]+")


def _word_table() -> bytes:
    """Letters in lower case, `_` and other scripts stay; everything else is a space."""
    table = bytearray(b" " * 128) + bytes(range(128, 256))
    for code in range(128):
        if chr(code).isalpha() or chr(code) == "_":
            table[code] = ord(chr(code).lower())
    return bytes(table)


_WORDS = _word_table()


def hashes_of(texts: bytes) -> set[int]:
    """The hashed n-grams of valid UTF-8. Those of a part of a text are among those of the text."""
    words = set(texts.translate(_WORDS).split())
    mixed = b" ".join(word for word in words if not word.isascii()).decode()
    ascii_words = {word for word in words if word.isascii()}
    ascii_words.update(part.encode() for part in set(_ASCII_WORDS.findall(mixed)))
    return _hashes_of_words(ascii_words) | _hashes_of_runs(_OTHER_SCRIPTS.findall(mixed))


def _hashes_of_words(words: Iterable[bytes]) -> set[int]:
    grams: set[bytes] = set()
    for word in words:
        grams.update([word[at : at + _SIZE] for at in range(len(word) - _SIZE + 1)])
    return set(map(crc32, grams))


def _hashes_of_runs(runs: Iterable[str]) -> set[int]:
    letters: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for run in runs:
        letters.update(run)
        pairs.update(pairwise(run))
    hashes = {ord(letter) * _LETTER for letter in letters}
    hashes.update([ord(first) * _FIRST + ord(second) for first, second in pairs])
    return hashes


def make_summary(texts: bytes) -> bytes:
    """The bitmap; its length is a power of two."""
    hashes = hashes_of(texts)
    bits = _FEWEST
    while bits < _ROOM * len(hashes) and bits < _MOST:
        bits *= 2
    summary, mask = bytearray(bits // 8), bits - 1
    for number in hashes:
        summary[(number & mask) >> 3] |= 1 << (number & 7)
    return bytes(summary)


def may_contain(summary: bytes, hashes: Iterable[int]) -> bool:
    """False only when a text with all of them is not in the piece; an empty summary excludes
    nothing."""
    if not summary:
        return True
    mask = len(summary) * 8 - 1
    return all(summary[(number & mask) >> 3] >> (number & 7) & 1 for number in hashes)
