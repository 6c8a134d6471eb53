"""The bench `soak`: does anything grow that should not, when it runs for long?"""
