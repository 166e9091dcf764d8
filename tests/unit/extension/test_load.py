"""Plugins: which are imported, what they bring, and who is named when something is wrong. Real distributions, laid out
as an installer does."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from egress.extension.load import Plugins, load_plugins
from egress.extension.manager import Permissions, choose, installed
from egress.sdk.secrets import BadSpec
from tests.support.secret_sources import sources

SOURCE = """
from egress.sdk.hookspecs import hookimpl
from egress.sdk.secrets import BadSpec, Fetched

class Source:
    async def fetch(self):
        return Fetched.one("from {name}")

def make(fields, context):
    if "bad" in fields:
        raise BadSpec("is bad", ("bad",))
    if "broken" in fields:
        raise RuntimeError("canary")
    return Source()

@hookimpl
def egress_secret_sources():
    return {{"{scheme}": make}}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of distributions on the path; what was imported from it is forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("acme_"):
            del sys.modules[name]


def distribution(site: Path, name: str, plugin: str, code: str, version: str = "1.2") -> Path:
    module = "acme_" + name.replace("-", "_")
    (site / f"{module}.py").write_text(code)
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[egress.plugins]\n{plugin} = {module}\n")
    record = info / "RECORD"
    record.write_text(f"{module}.py,sha256=x,1\n")
    return record


def source(site: Path, name: str, plugin: str, scheme: str) -> Path:
    return distribution(site, name, plugin, SOURCE.format(name=name, scheme=scheme))


def problems(found: Plugins) -> list[str]:
    return [one.message for one in found.diagnostics]


async def test_a_plugin_that_is_enabled(site: Path) -> None:
    source(site, "acme-egress", "acme-vault", "acme")
    found = load_plugins(["acme-vault"])
    assert problems(found) == []
    assert [str(one) for one in found.loaded] == ["`acme-vault` of acme-egress 1.2"]
    made = found.sources["acme"]({}, sources(site).context())
    assert (await made.fetch()).values[""].reveal() == "from acme-egress"


@pytest.mark.parametrize("named", [(["acme-egress"], []), ([], ["acme-egress"]), ([], ["ACME_egress"])])
def test_a_distribution_that_is_named(site: Path, named: tuple[list[str], list[str]]) -> None:
    source(site, "acme-egress", "acme-vault", "acme")
    assert set(load_plugins(*named).sources) == {"acme"}


def test_nothing_else_is_imported(site: Path) -> None:
    source(site, "acme-egress", "acme-vault", "acme")
    distribution(site, "evil", "evil", "raise SystemExit('imported')")
    assert set(load_plugins(["acme-vault"]).sources) == {"acme"}
    assert load_plugins([]) == Plugins()
    assert "acme_evil" not in sys.modules


def test_a_proxy_without_plugins_does_without_the_library() -> None:
    code = "import sys; from egress.extension.load import load_plugins as load; load([]); assert 'pluggy' not in sys.modules"  # noqa: E501
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_a_plugin_that_is_not_there(site: Path) -> None:
    source(site, "acme-egress", "acme-vault", "acme")
    assert len(problems(load_plugins(["acme-vualt"]))) == 1
    assert problems(load_plugins(["acme-vualt"]))[0].startswith("no plugin `acme-vualt` is installed; installed are ")
    assert "acme-vault" in problems(load_plugins(["acme-vualt"]))[0]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nowhere_at_all", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def", "cannot be loaded: SyntaxError"),
        (
            "from egress.sdk.hookspecs import hookimpl\n@hookimpl\ndef egress_no_such_hook(): ...",
            "cannot be loaded: PluginValidationError",
        ),
        (
            "from egress.sdk.hookspecs import hookimpl as h\n@h\ndef egress_secret_sources(): raise OSError('canary')",
            "failed in egress_secret_sources: OSError",
        ),
        (
            "from egress.sdk.hookspecs import hookimpl\n@hookimpl\ndef egress_secret_sources(): return {'a': 5}",
            "gives no factories by name in egress_secret_sources",
        ),
    ],
)
def test_a_plugin_that_does_not_work(site: Path, code: str, words: str) -> None:
    distribution(site, "acme-egress", "acme-vault", code)
    found = load_plugins(["acme-vault"])
    assert len(found.diagnostics) == 1
    assert problems(found)[0].startswith(f"the plugin `acme-vault` of acme-egress 1.2 {words}")
    assert "canary" not in problems(found)[0]
    assert not found.sources


def test_two_plugins_that_claim_one_scheme(site: Path) -> None:
    source(site, "acme-egress", "acme", "vault")
    source(site, "other-egress", "other", "vault")
    assert problems(load_plugins(["acme", "other"])) == [
        "two plugins claim `vault`: `acme` of acme-egress 1.2 and `other` of other-egress 1.2"
    ]
    assert problems(load_plugins(["acme"])) == []


def test_two_plugins_of_one_name(site: Path) -> None:
    source(site, "acme-egress", "vault", "a")
    source(site, "other-egress", "vault", "b")
    found = load_plugins(["vault"])
    assert problems(found) == ["two plugins have one name: `vault` of acme-egress 1.2 and `vault` of other-egress 1.2"]
    assert not found.sources


def test_a_scheme_that_is_built_in(site: Path) -> None:
    source(site, "acme-egress", "acme", "file")
    found = load_plugins(["acme"], taken=("file",))
    assert problems(found) == ["the plugin `acme` of acme-egress 1.2 claims `file`, which is built in"]


def test_files_that_were_agreed_on(site: Path) -> None:
    record = source(site, "acme-egress", "acme", "a")
    digest = hashlib.sha256(record.read_bytes()).hexdigest()
    for agreed in (digest, f"sha256:{digest}"):
        assert problems(load_plugins(["acme"], hashes={"acme-egress": agreed})) == []
    found = load_plugins(["acme"], hashes={"Acme_Egress": "0" * 64})
    assert problems(found) == [
        "the plugin `acme` of acme-egress 1.2 is not the one that `plugins.require_hashes` names"
    ]
    assert not found.sources


def test_what_a_plugin_says_of_a_specification(site: Path) -> None:
    source(site, "acme-egress", "acme", "a")
    make = load_plugins(["acme"]).sources["a"]
    with pytest.raises(BadSpec, match="is bad") as caught:
        make({"bad": 1}, sources(site).context())
    assert caught.value.path == ("bad",)
    with pytest.raises(BadSpec) as caught:
        make({"broken": 1}, sources(site).context())
    assert caught.value.message == "the plugin `acme` of acme-egress 1.2 broke on it: RuntimeError"


def test_permissions_without_an_environment() -> None:
    found = [one for one in installed(entry_points(group="egress.plugins")) if one.name.startswith("acme")]
    assert choose(found, Permissions()) == ([], [])
