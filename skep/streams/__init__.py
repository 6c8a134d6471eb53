"""Items and messages out into the world: files, databases, queues, webhooks.

A sink is written once, here, and used by runs (items) and by pipelines (messages).
"""
