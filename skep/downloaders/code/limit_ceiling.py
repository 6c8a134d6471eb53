"""The most that a machine gives to user code, whatever the code asks for. Pure.

Limits come with the code; these bounds come from the operator. The lower of the two holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from skep.model.user_code import CodeLimits
from skep.settings import AgentSettings


@dataclass(frozen=True, slots=True)
class Ceiling:
    memory: int
    scratch: int
    processes: int

    @classmethod
    def of(cls, settings: AgentSettings) -> Ceiling:
        return cls(settings.code_memory, settings.code_scratch, settings.code_processes)

    def applied(self, asked: CodeLimits) -> CodeLimits:
        """What the code gets."""
        return msgspec.structs.replace(
            asked,
            memory=min(asked.memory, self.memory),
            scratch=min(asked.scratch, self.scratch),
            processes=min(asked.processes, self.processes),
        )
