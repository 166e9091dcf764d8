"""Session-wide fixtures: the loop that origins run on, and the authority that signs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.authorities import OriginAuthority
from tests.support.origins import OriginLoop


@pytest.fixture(scope="session")
def origin_loop() -> Iterator[OriginLoop]:
    loop = OriginLoop()
    yield loop
    loop.stop()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> OriginAuthority:
    return OriginAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent
