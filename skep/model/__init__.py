"""Data types shared by several processes: pure data, no await, no I/O.

The legal changes of every state are tables here, and nowhere else.
"""
