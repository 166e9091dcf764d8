from pathlib import Path

import pytest

from egress.identity.links import MAX_LINKS, LinkLoop, resolve_in_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "opt/tool-1.2/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/python3.12").touch()
    (tmp_path / "opt/tool-1.2/bin/x").touch()
    return tmp_path


def link(root: Path, at: str, to: str) -> None:
    (root / at).symlink_to(to)


@pytest.mark.parametrize(
    ("links", "path", "resolved"),
    [
        ({}, "/usr/bin/python3.12", "/usr/bin/python3.12"),
        ({"usr/bin/python3": "python3.12"}, "/usr/bin/python3", "/usr/bin/python3.12"),
        ({"usr/bin/python": "python3", "usr/bin/python3": "python3.12"}, "/usr/bin/python", "/usr/bin/python3.12"),
        ({"bin": "usr/bin"}, "/bin/python3.12", "/usr/bin/python3.12"),
        ({"opt/tool": "tool-1.2"}, "/opt/tool/bin/x", "/opt/tool-1.2/bin/x"),
        ({"opt/tool": "/opt/tool-1.2"}, "/opt/tool/bin/x", "/opt/tool-1.2/bin/x"),
        ({"opt/y": "../usr/./bin//python3.12"}, "/opt/y", "/usr/bin/python3.12"),
        ({"opt/y": "../../../../usr/bin/python3.12"}, "/opt/y", "/usr/bin/python3.12"),
        ({"opt/y": "/usr/bin"}, "/opt/y/../bin/python3.12", "/usr/bin/python3.12"),
        ({"opt/y": "nothing"}, "/opt/y", None),
        ({}, "/usr/bin/missing", None),
        ({}, "/missing/bin/x", None),
        ({}, "/usr/bin/python3.12/x", None),
    ],
)
def test_resolution(root: Path, links: dict[str, str], path: str, resolved: str | None) -> None:
    for at, to in links.items():
        link(root, at, to)
    assert resolve_in_root(root, path) == resolved


def test_an_absolute_link_stays_inside_the_root(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    link(root, "opt/y", str(outside))
    assert resolve_in_root(root / "opt", "/y") is None


def test_loops_have_a_name(root: Path) -> None:
    link(root, "opt/a", "b")
    link(root, "opt/b", "a")
    with pytest.raises(LinkLoop, match="/opt/a leads through more than 40 links"):
        resolve_in_root(root, "/opt/a")


def test_as_many_links_as_the_kernel_follows(root: Path) -> None:
    for number in range(MAX_LINKS):
        link(root, f"opt/{number}", str(number + 1))
    (root / "opt" / str(MAX_LINKS)).touch()
    assert resolve_in_root(root, "/opt/0") == f"/opt/{MAX_LINKS}"
    link(root, "opt/more", "0")
    with pytest.raises(LinkLoop):
        resolve_in_root(root, "/opt/more")
