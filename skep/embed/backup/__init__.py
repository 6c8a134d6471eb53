"""Backup of a center while it runs, and restore into an empty folder or database.

A backup is a folder, or the same as one .tar file. Its manifest is written last and lists every
file with its SHA-256: without a manifest, or with a file that differs, nothing is restored.
"""
