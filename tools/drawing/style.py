"""Colors, sizes and the width of text. Pure.

Colors are defined once for light and once for dark; a test checks the contrast of every pair in
`READ_ON`. Widths are those of a wide font (DejaVu), so that text fits with any common font.
"""

from __future__ import annotations

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f7f9",
    "box": "#ffffff",
    "edge": "#b9c3ce",
    "ink": "#1b2530",
    "soft": "#4d5a68",
    "line": "#7d8fa3",
    "accent": "#b3400d",
    "number": "#ffffff",
    "pill": "#fbe9df",
    "both": "#0f766e",
    "center": "#b7791f",
    "agent": "#2563c4",
    "neither": "#a3adb8",
    "grid": "#dfe5eb",
}
DARK = {
    "paper": "#0e141b",
    "panel": "#141c25",
    "box": "#1a242f",
    "edge": "#3a4856",
    "ink": "#e9eff5",
    "soft": "#a9b7c5",
    "line": "#6f8499",
    "accent": "#ff9d66",
    "number": "#1b120c",
    "pill": "#3b2519",
    "both": "#35b8aa",
    "center": "#e0ab4c",
    "agent": "#6ea8fe",
    "neither": "#5f6c79",
    "grid": "#26313d",
}
#: (color, background, minimum contrast): 4.5 for text, 3 for lines and marks.
READ_ON = [
    *(("ink", ground, 7.0) for ground in ("paper", "panel", "box")),
    *(("soft", ground, 4.5) for ground in ("paper", "panel", "box")),
    *(("accent", ground, 4.5) for ground in ("panel", "pill")),
    ("number", "accent", 4.5),
    *(("line", ground, 3.0) for ground in ("panel", "box")),
    *((mark, "box", 3.0) for mark in ("both", "center", "agent")),
    *((mark, "panel", 3.0) for mark in ("both", "center", "agent")),
]
#: Sizes of text in pixels, by class.
SIZES = {"title": 19.0, "head": 13.5, "name": 13.0, "said": 11.0, "file": 10.5, "tiny": 10.0}
SIZES |= {"number": 10.0, "state": 10.0, "strong": 11.0}
MONOSPACED = {"name", "file"}
#: Below this a channel of sRGB is linear.
LINEAR_UP_TO = 0.04045
BOLD = {"title", "head", "name", "strong", "number"}


def css() -> str:
    fixed = [
        f"text {{ font-family: {SANS}; font-size: {SIZES['said']}px; }}",
        f".name, .file {{ font-family: {MONO}; }}",
        ".title, .head, .name, .strong, .number { font-weight: 600; }",
        *(f".{name} {{ font-size: {size}px; }}" for name, size in SIZES.items()),
        ".link, .way { fill: none; stroke-width: 1.4; } .way { stroke-width: 2; }",
        ".box, .stage { stroke-width: 1; }",
    ]
    dark = "".join(f"  {rule}\n" for rule in _colors(DARK))
    lines = [*fixed, *_colors(LIGHT)]
    return "\n".join(lines) + f"\n@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def _colors(of: dict[str, str]) -> list[str]:
    rules = [
        f".paper {{ fill: {of['paper']}; }}",
        f".stage {{ fill: {of['panel']}; stroke: {of['grid']}; }}",
        f".box {{ fill: {of['box']}; stroke: {of['edge']}; }}",
        f".title, .head, .name, .strong {{ fill: {of['ink']}; }}",
        f".said, .file, .tiny {{ fill: {of['soft']}; }}",
        f".link {{ stroke: {of['line']}; }} .tip {{ fill: {of['line']}; }}",
        f".way {{ stroke: {of['accent']}; }} .stop {{ fill: {of['accent']}; }}",
        f".number {{ fill: {of['number']}; }}",
        f".pill {{ fill: {of['pill']}; }} .state {{ fill: {of['accent']}; }}",
        f".grid {{ stroke: {of['grid']}; }}",
    ]
    programs = ("both", "center", "agent", "neither")
    return rules + [f".{name} {{ fill: {of[name]}; }}" for name in programs]


def width_of(text: str, kind: str) -> float:
    """The maximum width of this text in pixels."""
    size = SIZES.get(kind, SIZES["said"])
    if kind in MONOSPACED:
        return 0.61 * size * len(text)
    return sum(map(_advance, text)) * size * (1.1 if kind in BOLD else 1.0)


def _advance(letter: str) -> float:
    """In units of the font size."""
    if letter in "iljI.,:;'|!() ":
        return 0.36
    if letter in "ftr-/":
        return 0.42
    if letter in "mwMW@%":
        return 0.98
    return 0.73 if letter.isupper() else 0.63


def wrapped(text: str, kind: str, width: float) -> list[str]:
    """The text in lines that fit."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(longer, kind) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2: 1 (equal) to 21 (black on white)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= LINEAR_UP_TO else ((part + 0.055) / 1.055) ** 2.4
        for part in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
