"""Limits for connections to a center: size and duration of heads and bodies, number of
connections. They apply before a request is decoded or a token is looked up.
"""
