"""Profiles and providers files, and everything that is said about them, side by side in one file each."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from egress.credentials.profiles import Profile, lint, read_profile
from egress.credentials.providers import ProviderSet, load_providers
from egress.documents.diagnostic import Diagnostic, render

GOLDEN = Path(__file__).parent / "golden"
DIVIDER = "----- says -----\n"


def parts(path: Path) -> tuple[str, str]:
    text, _, expected = path.read_text().partition(DIVIDER)
    assert expected, f"{path.name} says nothing"
    return text, expected


def compare(found: Sequence[Diagnostic], base: Path, expected: str, *, refused: bool) -> None:
    assert render(found).replace(f"{base}/", "") == expected
    assert refused is (": error: " in expected)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("profiles/*.txt")), ids=lambda path: path.stem)
def test_profiles(path: Path, tmp_path: Path) -> None:
    text, expected = parts(path)
    found = read_profile(text.encode(), "profile.yaml")
    said = lint(found) if isinstance(found, Profile) else found
    compare(said, tmp_path, expected, refused=not isinstance(found, Profile))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("providers/*.txt")), ids=lambda path: path.stem)
def test_providers(path: Path, tmp_path: Path) -> None:
    text, expected = parts(path)
    file = tmp_path / "providers.yaml"
    file.write_text(text)
    found = load_providers(file)
    said = found.diagnostics if isinstance(found, ProviderSet) else found
    compare(said, tmp_path, expected, refused=not isinstance(found, ProviderSet))
