"""The drawing of the whole, `docs/why/architecture.svg`, made from the package itself.

`facts` reads rooms, imports and steps; `layout` puts the rooms in layers; `panels` draws;
`style` holds colors and widths of text. No room is named here but the two programs.
"""
