"""The settings that offline commands go by: those of the search order, or all defaults."""

import os
from pathlib import Path

from egress.cli.terminal import complain, refuse
from egress.config.load import Loaded, find_file, load
from egress.config.overrides import Flags
from egress.config.settings import Settings
from egress.documents.diagnostic import Diagnostic


def operator_settings(config: Path | None) -> Settings:
    """Settings in force; the command ends when they are invalid."""
    loaded = load_settings(config)
    if isinstance(loaded, tuple):
        refuse(loaded)
    complain(loaded.warnings)
    return loaded.settings


def load_settings(config: Path | None) -> Loaded | tuple[Diagnostic, ...]:
    """The same as a value. Without any file a policy is missing too, which offline commands can do without."""
    if find_file(config, os.environ) is None:
        return Loaded(Settings(version=1), None)
    return load(Flags(config=config), os.environ)
