"""Why something does not run: what it waits for and what will free it. Run by centers only.

Each module decides about one noun, from facts alone; `explainer` gathers the facts.
"""
