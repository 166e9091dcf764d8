"""Cross-field rules of a whole document: static sections, entries, binaries and middleware."""

import re

from egress.documents.diagnostic import has_errors
from egress.documents.findings import Findings
from egress.documents.location import KeyPath
from egress.policy.document import BinaryModel, EntryModel, FilesystemModel, MiddlewareModel, PolicyModel, ProcessModel
from egress.policy.endpoint_rules import Subject, check_endpoint
from egress.policy.globs import Dialect, GlobError, translate
from egress.policy.hosts import HostPattern, HostPatternError, parse_host_selector
from egress.policy.templates import unfilled

VERSION = 1
MAX_FILESYSTEM_PATHS = 256
MAX_FILESYSTEM_PATH = 4096
MAX_MIDDLEWARES = 10
MAX_SELECTORS = 32
MAX_IDENTITY = 4294967294
_SHOWN_PATH = 80
_DECIMAL = re.compile(r"[0-9]{1,10}\Z", re.ASCII)

type Patterns = dict[tuple[str, int], HostPattern | None]
"""The host pattern of each sound endpoint, by entry key and index; None for hostless ones."""


def check_policy(model: PolicyModel, findings: Findings, default_enforcement: str) -> Patterns:
    """Say everything that is wrong with one document, apart from conflicts between endpoints."""
    if model.version != VERSION:
        findings.error(("version",), f"version {model.version} is not supported", f"write `version: {VERSION}`")
    if model.filesystem_policy is not None:
        _filesystem(model.filesystem_policy, findings)
    if model.process is not None:
        _process(model.process, findings)
    patterns: Patterns = {}
    for key, entry in model.network_policies.items():
        patterns |= _entry(key, entry, findings, default_enforcement)
    if len(model.network_middlewares) > MAX_MIDDLEWARES:
        findings.error(("network_middlewares",), f"lists more than {MAX_MIDDLEWARES} middlewares")
    for key, middleware in model.network_middlewares.items():
        _middleware(middleware, ("network_middlewares", key), findings)
    return patterns


def _entry(key: str, entry: EntryModel, findings: Findings, default_enforcement: str) -> Patterns:
    path: KeyPath = ("network_policies", key)
    if not entry.endpoints:
        findings.warning(path, "the entry lists no endpoints and can never match")
    if not entry.binaries:
        hint = 'write `binaries: [{path: "/**"}]` to mean every program'
        findings.warning(path, "the entry lists no binaries and can never match", hint)
    for index, binary in enumerate(entry.binaries):
        if binary is not None:
            _binary(binary, (*path, "binaries", index), findings)
        else:
            _set_aside(key, "binaries", index, findings)
    patterns: Patterns = {}
    for index, endpoint in enumerate(entry.endpoints):
        place = (*path, "endpoints", index)
        if endpoint is not None:
            own = Findings(findings.document)
            pattern = check_endpoint(Subject(endpoint, place, own), default_enforcement)
            findings.diagnostics.extend(own.diagnostics)
            if not has_errors(own.diagnostics):
                patterns[key, index] = pattern
        else:
            _set_aside(key, "endpoints", index, findings)
    return patterns


def _set_aside(key: str, kind: str, index: int, findings: Findings) -> None:
    """An item whose own keys are wrong was reported already; one that is written as nothing was not."""
    if findings.document.data["network_policies"][key][kind][index] is None:
        findings.error(("network_policies", key, kind, index), "must be a mapping, not empty")


def _filesystem(model: FilesystemModel, findings: Findings) -> None:
    section: KeyPath = ("filesystem_policy",)
    if len(model.read_only) + len(model.read_write) > MAX_FILESYSTEM_PATHS:
        findings.error(section, f"lists more than {MAX_FILESYSTEM_PATHS} paths")
    for key, paths in (("read_only", model.read_only), ("read_write", model.read_write)):
        for index, text in enumerate(paths):
            place = (*section, key, index)
            if len(text.encode("utf-8", "surrogatepass")) > MAX_FILESYSTEM_PATH:
                shown = text.encode()[:_SHOWN_PATH].decode(errors="ignore")
                findings.error(place, f"`{shown}…` is longer than {MAX_FILESYSTEM_PATH} bytes")
                continue
            if not text.startswith("/"):
                findings.error(place, "must be an absolute path", f"write `/{text}`")
            if ".." in text.split("/"):
                findings.error(place, "must not contain `..`", "write the path out")
            if key == "read_write" and text and not text.strip("/"):
                findings.error(place, "the root cannot be writable", "name the directories")


def _process(model: ProcessModel, findings: Findings) -> None:
    for key, value in (("run_as_user", model.run_as_user), ("run_as_group", model.run_as_group)):
        if value is None or value == "sandbox" or (_DECIMAL.match(value) and 1 <= int(value) <= MAX_IDENTITY):
            continue
        hint = f"write `sandbox`, a number from 1 to {MAX_IDENTITY} in quotes, or leave the key out"
        findings.error(("process", key), "is no identity that the workload may have", hint)


def _binary(model: BinaryModel, path: KeyPath, findings: Findings) -> None:
    text = model.path
    place = (*path, "path")
    if not text:
        findings.error(place, "must not be empty", 'write the path of the executable, or "/**" for any')
        return
    if "*" in text:
        try:
            translate(text, Dialect.PATH)
        except GlobError as problem:
            findings.error(place, f"not a glob: {problem}")
    if unfilled(text):
        findings.warning(place, "holds an unfilled placeholder, which is never expanded")
    elif not text.startswith(("/", "*")):
        hint = f"write `**/{text}`, or the absolute path"
        findings.warning(place, "can match no executable, since their paths start with `/`", hint)
    if model.harness is not None:
        findings.note((*path, "harness"), "is accepted for old files and has no effect")
    if model.sha256 is not None and not model.sha256:
        findings.error((*path, "sha256"), "must not be empty", "leave the key out to accept any image")


def _middleware(model: MiddlewareModel, path: KeyPath, findings: Findings) -> None:
    if not model.middleware.strip():
        findings.error((*path, "middleware"), "must not be empty", "write the name of the implementation")
    selectors = model.endpoints
    place = (*path, "endpoints")
    if not selectors.include:
        findings.error((*place, "include"), "must not be empty", 'write host names, or "**" for every host')
    if len(selectors.include) + len(selectors.exclude) > MAX_SELECTORS:
        findings.error(place, f"lists more than {MAX_SELECTORS} host selectors")
    for key, texts in (("include", selectors.include), ("exclude", selectors.exclude)):
        for index, text in enumerate(texts):
            try:
                parse_host_selector(text)
            except HostPatternError as problem:
                message, _, hint = str(problem).partition("\n")
                findings.error((*place, key, index), message, hint)
