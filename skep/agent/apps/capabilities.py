"""Finds what this agent can run: packages where user code is allowed, images where the operator
allows it. Checked once, when an agent starts; each kind that is not offered has a reason.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field

from skep.agent.apps.container import ContainerEngine, Containers
from skep.agent.apps.engines import find_engine
from skep.agent.apps.process import Processes
from skep.downloaders.code.isolation import Isolation
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.registry import code_refusal
from skep.model.jobs.app import APP_KIND, IMAGE_KIND
from skep.settings import AgentSettings

log = logging.getLogger(__name__)

_OFF = "the kind {!r} is switched off on this agent (agent.kinds_off)"


@dataclass(frozen=True, slots=True)
class Offer:
    """How this agent runs applications, or why it does not."""

    isolation: Isolation
    no_packages: str
    engine: ContainerEngine | None
    no_images: str
    #: Registries from which images may be pulled.
    egress: EgressPolicy = field(default_factory=EgressPolicy)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds for the registration."""
        packages = () if self.no_packages else (APP_KIND,)
        return packages if self.no_images else (*packages, IMAGE_KIND)

    def processes(self, settings: AgentSettings) -> Processes | str:
        return self.no_packages or Processes(self.isolation, settings)

    def containers(self, settings: AgentSettings) -> Containers | str:
        if self.engine is None or self.no_images:
            return self.no_images
        return Containers(self.engine, settings, self.egress)


#: For an agent that only downloads.
NOTHING = Offer(Isolation("", "not checked", own_user=False), "not offered", None, "not offered")


def look(
    settings: AgentSettings, agent: str, isolation: Isolation, egress: EgressPolicy | None = None
) -> Offer:
    """Tests the engine, if allowed; blocks for a moment."""
    no_packages = code_refusal(settings, isolation)
    if APP_KIND in settings.kinds_off:
        no_packages = _OFF.format(APP_KIND)
    elif not sys.platform.startswith("linux"):
        no_packages = "applications need Linux"
    engine = find_engine(settings, agent)
    no_images = engine if isinstance(engine, str) else ""
    if IMAGE_KIND in settings.kinds_off:
        no_images = _OFF.format(IMAGE_KIND)
    elif settings.containers and no_images:
        log.warning("this agent does not run application images: %s", no_images)
    found = None if isinstance(engine, str) else engine
    return Offer(isolation, no_packages, found, no_images, egress or EgressPolicy())
