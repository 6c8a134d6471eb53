"""The limits of expressions: of their text, and of the values that they make. Pure data.

An expression has no loop, so its cost is bounded by its size and the size of the message. The
limits on values keep each step from making a value that is much larger than the message.
"""

from __future__ import annotations

#: Characters of one expression.
TEXT_LIMIT = 4000
#: Levels of nesting; the compiler recurses once per level.
DEPTH_LIMIT = 32
#: Operators, names, constants and calls of one expression.
NODE_LIMIT = 400
#: Characters of a text, and entries of a list, that an operator or function makes or reads.
SIZE_LIMIT = 100_000
#: Bits of an integer in the text of an expression.
CONSTANT_BITS = 64
#: Bits of an integer that an operator makes.
INTEGER_BITS = 256
#: Characters of one pattern.
PATTERN_LIMIT = 500
#: Bytes of memory of one compiled pattern. It also bounds the time: a pattern that needs more
#: states per character does not compile.
PATTERN_MEMORY = 2**20


class OverLimit(ValueError):
    """A value would exceed a limit; the expression has no result."""
