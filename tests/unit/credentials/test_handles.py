"""Handles: both recipes by their published vectors, and what moves them."""

from dataclasses import replace

import pytest

from egress.credentials.handles import HandleInputs, compatible_handle, epoch_of, handle

INPUTS = HandleInputs(
    "sandbox-a",
    "provider-a",
    "ACCESS_TOKEN",
    "epoch-a",
    (("API.EXAMPLE.COM.", 443, "**"), ("files.example.com", 8443, "/v1/**")),
)
KEY = bytes(range(32))
COMPATIBLE = "1e4618fbea84ca50d87bbe5199b2cb4a2dce37682e0b21861596697c348c3ab1"
OURS = "39301b20879acf98ded1cd67ed91164727e02bc5f874d8b0ce94b96ceaf7a6db"


@pytest.mark.parametrize(
    "endpoints",
    [
        INPUTS.endpoints,
        INPUTS.endpoints[::-1],
        INPUTS.endpoints * 2,
        ((" api.example.com ", 443, ""), ("files.example.com", 8443, " /v1/** ")),
        (("api.example.com", 443, "/**"), ("Files.Example.Com..", 8443, "/v1/**")),
    ],
)
def test_vectors_in_any_order_and_spelling(endpoints: tuple[tuple[str, int, str], ...]) -> None:
    inputs = replace(INPUTS, endpoints=endpoints)
    assert compatible_handle(inputs) == COMPATIBLE
    assert handle(KEY, inputs) == OURS


@pytest.mark.parametrize(
    "changed",
    [
        {"sandbox": "sandbox-b"},
        {"provider": "provider-b"},
        {"key": "OTHER"},
        {"epoch": "epoch-b"},
        {"endpoints": INPUTS.endpoints[:1]},
        {"endpoints": (("api.example.com", 443, ""), ("files.example.com", 8444, "/v1/**"))},
        {"endpoints": (("api.example.com", 443, ""), ("files.example.com", 8443, "/v2/**"))},
        {"sandbox": "sandbox-aprovider-a", "provider": ""},
    ],
)
def test_each_input_moves_it(changed: dict[str, object]) -> None:
    inputs = replace(INPUTS, **changed)
    assert compatible_handle(inputs) != COMPATIBLE
    assert handle(KEY, inputs) != OURS


def test_another_installation_has_other_handles() -> None:
    assert handle(bytes(32), INPUTS) != OURS


def test_an_epoch_is_where_a_value_comes_from() -> None:
    spec = {"vault": {"addr": "https://vault.test", "path": "desk/prod"}}
    same = {"vault": {"path": "desk/prod", "addr": "https://vault.test"}}
    first = epoch_of(spec, "desk", 0, 0)
    assert first == epoch_of(same, "desk", 0, 0)
    others = [
        epoch_of({"vault": {"addr": "https://vault.test", "path": "desk/test"}}, "desk", 0, 0),
        epoch_of(spec, "other", 0, 0),
        epoch_of(spec, "desk", 1, 0),
        epoch_of(spec, "desk", 0, 1),
    ]
    assert len({first, *others}) == 5
