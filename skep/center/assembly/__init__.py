"""Assembles the rooms of one center: a file per room. Nothing starts here."""
