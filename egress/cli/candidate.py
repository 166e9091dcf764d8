"""What a start would install, for commands that only look at it."""

import os
from pathlib import Path

from egress.config.load import find_file
from egress.config.overrides import Flags
from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import Location
from egress.generation.prepare import Candidate, prepare
from egress.model.ids import GenerationNumber

OFFLINE = GenerationNumber(0)


def prepare_offline(config: Path | None, policy: tuple[Path, ...]) -> Candidate | tuple[Diagnostic, ...]:
    """Settings and policies, compiled as `egress serve` would, or everything that is wrong with them."""
    if not policy and find_file(config, os.environ) is None:
        return (error(Location("egress"), "there is no settings file in the usual places", "name a policy file"),)
    return prepare(Flags(config, policy, check_origin="off"), os.environ, OFFLINE)
