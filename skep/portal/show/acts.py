"""An act on one object: a button with what it will do. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Act:
    """`key` is the text of the button; with `count` it says how many objects it is about."""

    key: str
    #: The path of the portal that a form posts to.
    path: str
    destroys: bool = False
    #: The key of the question that is asked first; "" = none is asked.
    confirm: str = ""
    count: int | None = None
    #: The same act as a command, and as a path of the API.
    command: str = ""
    api_path: str = ""
    method: str = "POST"
