"""Bounds on connections to a center: size and time of heads and bodies, number of
connections. They hold before a request is decoded or a token is looked up.
"""
