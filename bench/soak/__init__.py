"""The benchmark `soak`: does anything grow over a long time that should not?"""
