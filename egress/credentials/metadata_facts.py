"""What a workload may know in clear about its cloud, and the environment that tells SDKs where to ask."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"

AWS_PATH = "/v2/credentials/egress"
AZURE_PATH = "/metadata/identity/oauth2/token"

_INSTANCE = {
    "project/numeric-project-id": "numeric_project_id",
    "instance/id": "instance_id",
    "instance/name": "instance_name",
    "instance/hostname": "hostname",
    "instance/zone": "zone",
    "instance/region": "region",
}


@dataclass(frozen=True, slots=True)
class GoogleFacts:
    """Non-secret configuration of a Google provider; empty text means not configured. `scopes` limits what may be
    asked for when it is not empty. `vertex` is true for the Vertex AI provider."""

    project_id: str = ""
    numeric_project_id: str = ""
    region: str = ""
    zone: str = ""
    email: str = ""
    instance_id: str = ""
    instance_name: str = ""
    hostname: str = ""
    scopes: tuple[str, ...] = ()
    vertex: bool = False

    @staticmethod
    def of(config: Mapping[str, str], *, vertex: bool) -> "GoogleFacts":
        """Read the `config` map of a provider: names as here, `service_account_email`, `scopes` by blanks or commas."""
        names = ("project_id", "numeric_project_id", "region", "zone", "instance_id", "instance_name", "hostname")
        return GoogleFacts(
            **{name: config.get(name, "") for name in names},
            email=config.get("service_account_email", ""),
            scopes=tuple(config.get("scopes", "").replace(",", " ").split()),
            vertex=vertex,
        )

    @property
    def granted(self) -> tuple[str, ...]:
        return self.scopes or (CLOUD_PLATFORM,)

    def leaf(self, path: str) -> str:
        """The value at a path under `computeMetadata/v1`, empty when there is none."""
        name = _INSTANCE.get(path)
        if name is None:
            return ""
        value: str = getattr(self, name)
        if name in ("zone", "region") and value:  # clients cut these at the last slash
            return f"projects/{self.numeric_project_id or self.project_id}/{name}s/{value}"
        return value


@dataclass(frozen=True, slots=True)
class Clouds:
    """What the server speaks of: by settings and by providers."""

    google: GoogleFacts = field(default_factory=GoogleFacts)
    aws: bool = False
    azure: bool = False
    audiences: frozenset[str] = frozenset()
    """Audiences for which real identity tokens may be minted; normally none."""


def google_environment(address: str | None, facts: GoogleFacts) -> dict[str, str]:
    """Variables for Google's SDKs; without an address (the server could not be started) those that lead to it are
    left out, so that clients look for credentials elsewhere instead of waiting for nobody."""
    named = {
        "GCP_PROJECT_ID": facts.project_id,
        "GOOGLE_CLOUD_PROJECT": facts.project_id,
        "CLOUD_ML_REGION": facts.region,
        "GCP_LOCATION": facts.region,
        "GCP_SERVICE_ACCOUNT_EMAIL": facts.email,
    }
    if facts.vertex:
        named |= {
            "GOOSE_PROVIDER": "gcp_vertex_ai",
            "ANTHROPIC_VERTEX_PROJECT_ID": facts.project_id,
            "VERTEX_LOCATION": facts.region,
        }
    if address is not None:  # Python wants the port in _IP, Node the detection switch
        named |= {
            "GCE_METADATA_HOST": address,
            "GCE_METADATA_IP": address,
            "METADATA_SERVER_DETECTION": "assume-present",
        }
    return {name: value for name, value in named.items() if value}


def aws_environment(address: str) -> dict[str, str]:
    return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{address}{AWS_PATH}"}


def azure_environment(address: str) -> dict[str, str]:
    return {"AZURE_POD_IDENTITY_AUTHORITY_HOST": f"http://{address}"}
