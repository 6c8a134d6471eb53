"""Spiders: start requests, parse what came, yield items and more requests.

A spider's code runs in a process of its own and talks to a center over the run-facing API
alone: in a terminal, beside a running center, or as a job, without a change.
"""
