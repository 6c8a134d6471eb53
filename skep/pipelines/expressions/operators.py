"""Operators and look-ups with limits, called by compiled expressions. Pure.

Python's own operators would build a text of a gigabyte from three numbers, and `%` formats text.
Each function here checks the size of the result before it makes it.
"""

from __future__ import annotations

from typing import Any

from skep.pipelines.expressions.limits import INTEGER_BITS, SIZE_LIMIT, OverLimit

_NUMBERS = (int, float)


def item(value: Any, key: Any) -> Any:
    """`value[key]`; None when there is no such key, index or container."""
    if isinstance(value, dict):
        try:
            return value.get(key)
        except TypeError:  # a list as key
            return None
    if isinstance(value, str | list | tuple) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else None
    return None


def cut(value: Any, first: Any, last: Any) -> Any:
    """`value[first:last]`; None when the value is absent."""
    if value is None:
        return None
    if not isinstance(value, str | list | tuple):
        raise TypeError(f"cannot cut {type(value).__name__}")
    return value[first:last]


def add(left: Any, right: Any) -> Any:
    if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        _check_size(len(left) + len(right))
    return _bounded(left + right)


def multiply(left: Any, right: Any) -> Any:
    """Numbers, or a text and an integer. A repeated list would share its entries, and grow without
    limit when it is written."""
    if isinstance(left, int) and isinstance(right, str):
        left, right = right, left
    if isinstance(left, str) and isinstance(right, int):
        _check_size(len(left) * right)
        return left * right
    _check_numbers("*", left, right)
    return _bounded(left * right)


def remainder(left: Any, right: Any) -> Any:
    """Numbers only: with a text, `%` would format."""
    _check_numbers("%", left, right)
    return left % right


def power(base: Any, exponent: Any) -> Any:
    _check_numbers("**", base, exponent)
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent > 0 and abs(base).bit_length() * exponent > 2 * INTEGER_BITS:
            raise OverLimit(f"an integer exceeds {INTEGER_BITS} bits")
        return _bounded(base**exponent)
    made = base**exponent
    if isinstance(made, complex):
        raise TypeError("a root of a negative number is not supported")
    return made


def _check_numbers(sign: str, left: Any, right: Any) -> None:
    if not (isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS)):
        kinds = f"{type(left).__name__} and {type(right).__name__}"
        raise TypeError(f"{sign} is not supported for {kinds}")


def _check_size(size: int) -> None:
    if size > SIZE_LIMIT:
        raise OverLimit(f"a value exceeds {SIZE_LIMIT} characters or entries")


def _bounded(made: Any) -> Any:
    if isinstance(made, int) and made.bit_length() > INTEGER_BITS:
        raise OverLimit(f"an integer exceeds {INTEGER_BITS} bits")
    return made
