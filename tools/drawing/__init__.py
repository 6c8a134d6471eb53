"""The drawing of the whole package, `docs/why/architecture.svg`, made from the package itself.

`facts` reads rooms, imports and steps; `layout` arranges the rooms in layers; `panels` draws;
`style` has colors and text widths. No room is named here except for the two programs.
"""
