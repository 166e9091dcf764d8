"""OCSF 1.8.0 as far as it is used here: class tables, enumerations, and objects made from our values.

Label and id always travel together; absent members are left out, never null.
"""

from dataclasses import dataclass
from functools import cache, lru_cache

from egress.events.event import FlowContext, Severity
from egress.events.settings import Device
from egress.model.address import Host, IpAddress, Origin
from egress.model.process import Evidence, Process, ProcessEvidence

SCHEMA_VERSION = "1.8.0"

type Members = dict[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class EventClass:
    """One OCSF class: its numbers, the labels of its activities, and the profiles our records claim."""

    uid: int
    name: str
    category_uid: int
    category: str
    activities: dict[int, str]
    profiles: tuple[str, ...]


NETWORK_PROFILES = ("security_control", "network_proxy", "container", "host")
CONTROL_PROFILES = ("security_control", "container", "host")

NETWORK = EventClass(
    4001,
    "Network Activity",
    4,
    "Network Activity",
    {1: "Open", 2: "Close", 3: "Reset", 4: "Fail", 5: "Refuse", 6: "Traffic", 7: "Listen"},
    NETWORK_PROFILES,
)
HTTP = EventClass(
    4002,
    "HTTP Activity",
    4,
    "Network Activity",
    {
        1: "Connect",
        2: "Delete",
        3: "Get",
        4: "Head",
        5: "Options",
        6: "Post",
        7: "Put",
        8: "Trace",
        9: "Patch",
        99: "Other",
    },
    NETWORK_PROFILES,
)
FINDING = EventClass(2004, "Detection Finding", 2, "Findings", {1: "Create"}, CONTROL_PROFILES)
CONFIG = EventClass(5019, "Device Config State Change", 5, "Discovery", {1: "Log"}, CONTROL_PROFILES)
LIFECYCLE = EventClass(
    6002, "Application Lifecycle", 6, "Application Activity", {3: "Start", 4: "Stop"}, ("container", "host")
)

OPEN, CLOSE, FAIL, TRAFFIC, LISTEN = 1, 2, 4, 6, 7
CREATE = 1
LOG = 1
START, STOP = 3, 4
OTHER = 99

METHOD_ACTIVITIES = {label.upper(): uid for uid, label in HTTP.activities.items() if uid != OTHER}

SEVERITIES = {
    Severity.INFO: (1, "Informational"),
    Severity.LOW: (2, "Low"),
    Severity.MEDIUM: (3, "Medium"),
    Severity.HIGH: (4, "High"),
    Severity.CRITICAL: (5, "Critical"),
}

ALLOWED: Members = {"action_id": 1, "action": "Allowed", "disposition_id": 1, "disposition": "Allowed"}
BLOCKED: Members = {"action_id": 2, "action": "Denied", "disposition_id": 2, "disposition": "Blocked"}
DETECTED: Members = {"action_id": 3, "action": "Observed", "disposition_id": 15, "disposition": "Detected"}
SUCCESS: Members = {"status_id": 1, "status": "Success"}
FAILURE: Members = {"status_id": 2, "status": "Failure"}
OUTBOUND: Members = {"direction_id": 2, "direction": "Outbound", "protocol_name": "tcp"}


@cache
def classified(kind: EventClass, activity: int, severity: Severity) -> Members:
    """The members every record starts with; one shared value per argument, never to be changed."""
    label = kind.activities[activity]
    severity_id, severity_label = SEVERITIES[severity]
    return {
        "class_uid": kind.uid,
        "class_name": kind.name,
        "category_uid": kind.category_uid,
        "category_name": kind.category,
        "activity_id": activity,
        "activity_name": label,
        "type_uid": kind.uid * 100 + activity,
        "type_name": f"{kind.name}: {label}",
        "severity_id": severity_id,
        "severity": severity_label,
    }


def device(settings: Device) -> Members:
    """A virtual machine of its own when containerised, else a server. The container profile adds to the device."""
    container = container_of(settings)
    members: Members = {
        "hostname": settings.hostname,
        "type_id": 6 if container else 1,
        "type": "Virtual" if container else "Server",
        "os": {"name": "Linux", "type_id": 200, "type": "Linux"},
    }
    return {**members, "container": container} if container else members


def container_of(settings: Device) -> Members:
    """The container object; empty outside a container."""
    members: Members = {}
    if settings.container_name is not None:
        members |= {"name": settings.container_name, "uid": settings.container_name}
    if settings.container_image is not None:
        members.setdefault("name", settings.hostname)
        members["image"] = {"name": settings.container_image, "uid": settings.container_image}
    return members


@lru_cache(maxsize=4096)
def _spelled(address: IpAddress) -> str:
    return str(address)


def host_member(host: Host) -> Members:
    return {"ip" if host.literal else "domain": host.name}


def endpoints(context: FlowContext) -> Members:
    """Source, destination and proxy as far as they are known."""
    client = context.client
    members: Members = {
        "src_endpoint": {"ip": _spelled(client.client), "port": client.client_port},
        "proxy_endpoint": {"ip": _spelled(client.proxy), "port": client.proxy_port},
    }
    if context.origin is not None:
        destination = {**host_member(context.origin.host), "port": context.origin.port}
        if context.address is not None:
            destination["ip"] = _spelled(context.address)
        members["dst_endpoint"] = destination
    return members


def url(origin: Origin | None, path: str) -> Members:
    if origin is None:
        return {"path": path}
    return {"path": path, "scheme": origin.scheme.value, "hostname": origin.host.name, "port": origin.port}


def actor(evidence: Evidence | None) -> Members:
    """The calling process and its ancestors, immediate parent first. `-` and pid 0 stand for an unknown one."""
    if not isinstance(evidence, ProcessEvidence):
        return {"process": {"name": "-", "pid": 0, "cmd_line": "-"}}
    process: Members = {
        **_process(evidence.owners[0]),
        "cmd_line": ",".join(evidence.command_paths) or "-",
    }
    if evidence.uid is not None:
        process["user"] = {"uid": str(evidence.uid)}
    child = process
    for ancestor in evidence.ancestors:
        child["parent_process"] = child = _process(ancestor)
    return {"process": process}


def _process(process: Process) -> Members:
    return {"name": process.executable, "pid": process.pid}
