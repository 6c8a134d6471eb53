"""Encryption of secrets with AES-256-GCM. Pure but for the nonce.

The text that a value belongs to, such as its name, is authenticated with it: a value that is moved
to another name cannot be read. Keys are 32 random bytes; a nonce is random and never chosen.
"""

from __future__ import annotations

import hashlib
import secrets

KEY_BYTES = 32
_NONCE = 12


class NotReadable(ValueError):
    """The bytes were not encrypted with this key and about this, or were changed."""


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def key_id(key: bytes) -> str:
    """Names a key without giving any of it away."""
    return hashlib.sha256(b"skep key id\0" + key).hexdigest()[:16]


def encrypt(key: bytes, value: bytes, about: str) -> bytes:
    """Two calls never return the same bytes."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, value, about.encode())


def decrypt(key: bytes, sealed: bytes, about: str) -> bytes:
    """Raises NotReadable."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], about.encode())
    except (InvalidTag, ValueError):
        raise NotReadable("not encrypted with this key") from None
