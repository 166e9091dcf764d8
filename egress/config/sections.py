"""What every section of the settings file is made of: a frozen model whose fields say what they are for, whether a
reload may change them, and whether this version has the feature behind them."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """Unknown keys are errors: a misspelt limit must not become no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Trait:
    """Beside a field's description. `restart`: a reload that changes it is refused. `only`: the values that this
    version can honour, None for all of them."""

    restart: bool = False
    only: tuple[object, ...] | None = None


def live(default: Any, description: str, *, only: tuple[object, ...] | None = None) -> Any:
    """A setting that a reload may change."""
    return _field(default, description, Trait(only=only))


def fixed(default: Any, description: str) -> Any:
    """A setting that needs a restart."""
    return _field(default, description, Trait(restart=True))


def later(default: Any, description: str) -> Any:
    """A setting of a feature that this version does not have: read and checked, then refused."""
    return _field(default, description, Trait(only=(default,)))


def required(description: str) -> Any:
    """A setting without a default."""
    return _field(..., description, Trait())


def trait(field: FieldInfo) -> Trait:
    """The trait of a field made by one of the above."""
    extra = field.json_schema_extra
    found = extra["trait"] if isinstance(extra, dict) else None
    assert isinstance(found, Trait)  # every section is built from the four above
    return found


def _field(default: Any, description: str, trait: Trait) -> Any:
    return Field(default, description=description, json_schema_extra={"trait": trait})  # type: ignore[dict-item]
