"""A secret that tests send in every place a secret may stand, and that no event and no log may ever hold."""

import base64
from pathlib import Path
from urllib.parse import quote

CANARY = "canary-7f3e!secret"
SPELLINGS = tuple(
    spelling.encode()
    for spelling in (CANARY, quote(CANARY, safe=""), base64.b64encode(f"user:{CANARY}".encode()).decode(), "s3cret")
)
"""As it is, as in a URL, as in Basic credentials; and the password that other tests use."""


def told(*files: Path) -> list[str]:
    """Every line of these files that holds the canary, in whichever spelling."""
    return [
        f"{file.name}: {line[:400].decode(errors='replace')}"
        for file in files
        if file.is_file()
        for line in file.read_bytes().splitlines()
        if any(spelling in line for spelling in SPELLINGS)
    ]
