"""The center: keeps and decides. This room only puts the others together.

`Center` is the program; what it decides is decided in the rooms below.
"""
