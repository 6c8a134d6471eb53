"""`python -m skep` is `skep`."""

from __future__ import annotations

from skep.cli.main import main

if __name__ == "__main__":
    main()
