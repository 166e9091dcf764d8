"""Rules of the repository itself: pins, forbidden words, reference text."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [ROOT / name for name in listed.split("\n") if name and (ROOT / name).is_file()]


def test_constraints_file_and_uv_constraints_are_equal():
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["uv"]["constraint-dependencies"] == pins
    assert pins == sorted(pins, key=str.lower)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", pin) for pin in pins)


def test_every_dependency_is_pinned():
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ours = project["tool"]["uv"]["sources"]
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    wanted = [item for item in wanted if item not in ours]
    names = {re.match(r"[A-Za-z0-9._-]+", item)[0].lower().replace(".", "-").replace("_", "-") for item in wanted}
    assert names - {name.replace(".", "-").replace("_", "-") for name in pinned} == set()


@pytest.mark.parametrize(
    "words",
    [
        "pypi" + r"\.org|pythonhosted" + r"\.org|registry\.npm" + r"js\.org|deb\.debian" + r"\.org",
        "/ro" + "ot/|/wo" + "rk/|/fa" + "rm/|/ho" + "me/[a-z]+/",
    ],
    ids=["registry hosts", "machine paths"],
)
def test_no_registry_host_and_no_machine_path(words):
    found = []
    for path in tracked("*.py", "*.md", "*.toml", "*.yaml", "*.yml", "*.txt", "*.c", ".ci/*"):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if re.search(words, line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


def test_uv_lock_is_not_committed():
    assert tracked("uv.lock") == []


REVEALING = frozenset(
    {
        "egress/model/secret.py",
        # fetched, read and matched
        "egress/credentials/reading.py", "egress/credentials/snapshot.py", "egress/credentials/scrub.py",
        "egress/credentials/assertions.py", "egress/credentials/token_endpoint.py",
        "egress/credentials/metadata.py", "egress/credentials/metadata_identity.py",
        "egress/credentials/aws/lookup.py", "egress/credentials/sources/google.py",
        "egress/credentials/sources/oauth2.py", "egress/custody.py",
        # placed
        "egress/credentials/rewrite.py", "egress/credentials/grant_placement.py",
        "egress/credentials/aws/signature.py",
        # corporate proxies
        "egress/upstream/authorize.py", "egress/upstream/credential.py", "egress/upstream/digest.py",
        "egress/upstream/settings.py",
        "egress/upstream/socks.py",
    }
)  # fmt: skip
"""Modules in which a secret may come out of its wrapper; adding one is a decision."""


def test_secrets_come_out_where_that_is_meant():
    says = re.compile(r"\.reveal\(\)|def reveal")
    found = {str(path.relative_to(ROOT)) for path in tracked("egress/*.py") if says.search(path.read_text())}
    assert found - REVEALING == set()
    assert REVEALING - found == set()
