"""The upper bounds of a machine for the limits of user code. Pure.

Limits come with the code; these bounds come from the operator. The lower of the two applies.
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
        """The limits that the code gets."""
        return msgspec.structs.replace(
            asked,
            memory=min(asked.memory, self.memory),
            scratch=min(asked.scratch, self.scratch),
            processes=min(asked.processes, self.processes),
        )
