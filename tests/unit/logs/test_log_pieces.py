"""The place for log pieces that tests and benches use keeps the contract."""

from __future__ import annotations

from skep.testing.conformance.store.log_pieces import LogPiecesConformance


class TestSqliteLogPieces(LogPiecesConformance):
    """With the fixture `log_pieces` of this folder."""
