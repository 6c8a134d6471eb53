"""The center: it stores and decides. This room only assembles the other rooms.

`Center` is the program; the rooms below make the decisions.
"""
