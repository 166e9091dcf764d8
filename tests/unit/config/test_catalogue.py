"""The list of settings, and which of them a reload may change."""

from egress.config.catalogue import entries, needs_restart, unavailable
from egress.config.settings import Settings

ENTRIES = {entry.key: entry for entry in entries()}


def settings(**sections: object) -> Settings:
    return Settings.model_validate({"version": 1, **sections})


def test_every_key_says_what_it_is() -> None:
    assert len(ENTRIES) > 130
    for entry in ENTRIES.values():
        assert entry.type, entry.key
        assert entry.default, entry.key
        assert entry.description, entry.key


def test_types_and_defaults_are_words_of_the_file() -> None:
    shown = {
        key: (ENTRIES[key].type, ENTRIES[key].default)
        for key in (
            "version",
            "listen.proxy",
            "agents[].match.cidrs",
            "agents[].identity",
            "timeouts.websocket_idle",
            "limits.connections",
            "reload.quiet",
            "events.jsonl.rotate.max_bytes",
            "admin.unix.mode",
            "destinations.aliases",
            "errors.verbose",
            "http.via",
            "policy.file",
        )
    }
    assert shown == {
        "version": ("`1`", "required"),
        "listen.proxy": ("address or list of addresses", "`127.0.0.1:3128`"),
        "agents[].match.cidrs": ("list of address block", "none"),
        "agents[].identity": ("`required` or `optional` or `off`", "none"),
        "timeouts.websocket_idle": ("duration or `off`", "`off`"),
        "limits.connections": ("int or `auto`", "`auto`"),
        "reload.quiet": ("duration", "`200ms`"),
        "events.jsonl.rotate.max_bytes": ("size", "`256MiB`"),
        "admin.unix.mode": ("octal text", '`"0600"`'),
        "destinations.aliases": ("map of name to IP address", "`{}`"),
        "errors.verbose": ("bool", "`false`"),
        "http.via": ("word or `off`", "`egress`"),
        "policy.file": ("path or list of paths", "none"),
    }


def test_sections_of_other_versions_are_marked_with_all_their_keys() -> None:
    marked = {key.partition(".")[0] for key, entry in ENTRIES.items() if not entry.available}
    assert marked >= {"inference", "gateway", "store", "middleware"}
    assert not marked & {"providers", "listen", "timeouts", "tls", "identity", "logs", "metrics"}
    assert not ENTRIES["inference.metering.inject_usage"].available


def test_defaults_ask_for_nothing_unavailable() -> None:
    assert list(unavailable(settings())) == []


def test_what_is_unavailable_is_found_inside_lists() -> None:
    agent = {"name": "a", "match": {"uids": [1]}, "gateway": {"sandbox_id": "x"}}
    assert list(unavailable(settings(agents=[agent]))) == [("agents", 0, "gateway")]


def test_a_reload_may_change_most_and_not_all() -> None:
    before = settings()
    after = settings(
        listen={"proxy": "127.0.0.1:1"},
        tls={"ephemeral": True, "upstream_ca_file": "/x"},
        timeouts={"head": 1},
        admin={"unix": {"mode": "0660"}},
        metrics={"address": "127.0.0.1:9"},
    )
    assert list(needs_restart(before, after)) == ["listen.proxy", "tls.ephemeral", "metrics.address", "admin.unix.mode"]
    assert list(needs_restart(before, before)) == []


def test_connection_caps_follow_the_descriptor_limit() -> None:
    assert settings().limits.caps(1024) == (409, 204)
    assert settings(limits={"connections": 10}).limits.caps(1024) == (10, 5)
    assert settings(limits={"connections_per_caller": 7}).limits.caps(1024) == (409, 7)
    assert settings().limits.caps(1) == (1, 1)
