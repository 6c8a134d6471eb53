"""Encryption of small files with a key that is not on the disk. Pure but for the nonce.

Encrypts, then authenticates, with the standard library: the keystream is SHAKE-256 over a
key, a label and a random nonce; the tag is HMAC-SHA256 over nonce and ciphertext under a
second key derived from the same one. Callers must never choose the 16 random bytes of a nonce.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

KEY_BYTES = 32
_MARK = b"skep1"
_NONCE = 16
_TAG = 32


class SealBroken(ValueError):
    """The bytes were not sealed with this key, or were changed."""


def seal(key: bytes, data: bytes) -> bytes:
    """`data` encrypted; two calls never return the same bytes."""
    nonce = secrets.token_bytes(_NONCE)
    body = nonce + _crypt(key, nonce, data)
    return _MARK + _tag(key, body) + body


def unseal(key: bytes, sealed: bytes) -> bytes:
    """The decrypted data; raises SealBroken."""
    head = len(_MARK) + _TAG
    mark, tag, body = sealed[: len(_MARK)], sealed[len(_MARK) : head], sealed[head:]
    if mark != _MARK or len(body) < _NONCE or not hmac.compare_digest(tag, _tag(key, body)):
        raise SealBroken("not sealed with this key")
    return _crypt(key, body[:_NONCE], body[_NONCE:])


def is_sealed(data: bytes) -> bool:
    """Whether `data` is the output of `seal`, by its first bytes."""
    return data.startswith(_MARK)


def derived(key: bytes, label: str) -> bytes:
    """A key for one purpose; the other keys cannot be derived from it."""
    return hmac.digest(key, label.encode(), "sha256")


def _crypt(key: bytes, nonce: bytes, data: bytes) -> bytes:
    stream = hashlib.shake_256(derived(key, "stream") + nonce).digest(len(data))
    mixed = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
    return mixed.to_bytes(len(data), "big")


def _tag(key: bytes, body: bytes) -> bytes:
    return hmac.digest(derived(key, "tag"), body, "sha256")
