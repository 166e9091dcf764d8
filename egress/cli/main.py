"""The command tree: what can be typed and what it says about itself. The work is in the module of each command,
imported when it runs, so that `egress check` does not pay for a proxy."""

# ruff: noqa: PLC0415, PLR0913, PLR0917

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from egress import __version__
from egress.model.errors import EgressError

_RUN, _POLICY, _SET_UP = "Run", "Policy", "Set up and look up"
_UPSTREAM = "Corporate proxy"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""An egress proxy: programs reach the network through it, and a policy decides where they may go and what
    they may ask for.

    Try `egress demo` first: it needs no network and no set-up.
    """,
)
proxy_app = typer.Typer(
    no_args_is_help=True,
    help="""Corporate proxies on the way out: what is set, and whether it works from here.""",
)
ca_app = typer.Typer(
    no_args_is_help=True,
    help="""The local authority: the certificate that workloads must trust, and the key behind it.

    The proxy makes one at its first start. These commands make it earlier, show it, and hand out what workloads need.
    """,
)
credentials_app = typer.Typer(
    no_args_is_help=True,
    help="""Credentials of a running proxy: what it holds and how old that is. No command prints a value.""",
)
profiles_app = typer.Typer(
    no_args_is_help=True,
    help="""Profiles: what a provider can be an instance of, from the catalogue and from own directories.""",
)
app.add_typer(credentials_app, name="credentials", rich_help_panel=_SET_UP)
app.add_typer(profiles_app, name="profiles", rich_help_panel=_SET_UP)
app.add_typer(proxy_app, name="proxy", rich_help_panel=_SET_UP)
app.add_typer(ca_app, name="ca", rich_help_panel=_SET_UP)

Config = Annotated[Path | None, typer.Option("--config", help="Settings file. Default: the usual places.")]
Policy = Annotated[
    list[Path] | None, typer.Option("--policy", "--policy-data", help="Policy file or directory; may be repeated.")
]
Providers = Annotated[
    Path | None, typer.Option("--providers", help="File of credentials and where they belong; wins over the settings.")
]
Literals = Annotated[
    bool, typer.Option("--allow-literal-secrets", help="Values may be written into the providers file. For trying out.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
CaDirectory = Annotated[
    Path | None, typer.Option("--dir", help="Directory of the authority. Default: `tls.ca_dir` of the settings.")
]
Target = Annotated[Path | None, typer.Argument(help="File to write. Default: standard output.", show_default=False)]


class Shell(StrEnum):
    SH = "sh"
    FISH = "fish"
    DOTENV = "dotenv"
    JSON = "json"


class Topic(StrEnum):
    SETTINGS = "settings"
    CODES = "codes"
    LIMITS = "limits"
    COMMANDS = "commands"
    RANGES = "ranges"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"egress {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before a command."""


@app.command(rich_help_panel=_RUN)
def serve(
    config: Config = None,
    policy: Policy = None,
    providers: Providers = None,
    allow_literal_secrets: Literals = False,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where clients connect. Port 0 picks a free one.")
    ] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Directory of the authority and other state.")] = None,
    events: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write events there as JSON lines, and no readable log.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Written once connections are accepted: addresses and certificates as JSON.")
    ] = None,
    upstream_proxy: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Corporate proxy, `http://HOST:PORT`.", rich_help_panel=_UPSTREAM),
    ] = None,
    upstream_no_proxy: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Destinations that go past it.", rich_help_panel=_UPSTREAM),
    ] = None,
    upstream_proxy_auth_file: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="File with `user:password` for it.", rich_help_panel=_UPSTREAM),
    ] = None,
    upstream_proxy_auth_allow_insecure: Annotated[
        bool,
        typer.Option(
            "--upstream-proxy-auth-allow-insecure",
            help="Send that in clear, as `http` proxies need it.",
            rich_help_panel=_UPSTREAM,
        ),
    ] = False,
    upstream_proxy_connect_by_hostname: Annotated[
        bool,
        typer.Option(
            "--upstream-proxy-connect-by-hostname",
            help="Ask it for names instead of checked addresses.",
            rich_help_panel=_UPSTREAM,
        ),
    ] = False,
) -> None:
    """Run the proxy in the foreground.

    `egress serve --policy policy.yaml` is a complete start. SIGHUP reads the files again, SIGTERM finishes open
    exchanges and ends, a second SIGTERM ends at once.
    """
    from egress.cli.serve import serve as run_serve
    from egress.config.overrides import Flags
    from egress.config.proxy_flags import ProxyFlags

    proxy = ProxyFlags(
        upstream_proxy,
        upstream_no_proxy,
        upstream_proxy_auth_file,
        upstream_proxy_auth_allow_insecure,
        upstream_proxy_connect_by_hostname,
    )
    flags = Flags(
        config, tuple(policy or ()), listen, state_dir, events, log_level, proxy, providers, allow_literal_secrets
    )
    raise typer.Exit(run_serve(flags, ready_file))


@app.command(
    rich_help_panel=_RUN,
    no_args_is_help=True,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGUMENT]...", help="What to run.")],
    policy: Policy = None,
    providers: Providers = None,
    allow_literal_secrets: Literals = False,
    config: Config = None,
    agent: Annotated[
        str | None, typer.Option(help="Use the running proxy, as this agent of the settings file.")
    ] = None,
) -> None:
    """Run one command whose traffic goes through a proxy of its own.

    The command finds the proxy and the certificates in its environment; its exit code becomes ours. Nothing stops a
    program that ignores the environment: `run` is a convenience, not an isolation.
    """
    from egress.cli.run import run as run_command
    from egress.config.overrides import Flags

    flags = Flags(config, tuple(policy or ()), providers=providers, allow_literal_secrets=allow_literal_secrets)
    raise typer.Exit(run_command(command, flags, agent))


@app.command(rich_help_panel=_RUN)
def demo() -> None:
    """Show the proxy at work: one request allowed, one with a credential, three denied, and why. Needs no network."""
    from egress.cli.demo import demo as run_demo

    raise typer.Exit(run_demo())


@app.command(rich_help_panel=_POLICY)
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Policy files. Default: those of the settings file.", show_default=False),
    ] = None,
    config: Config = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    as_json: Json = False,
) -> None:
    """Tell everything that is wrong with a policy or a settings file, with file, line and what to write instead.

    Exit code 0: fine. 2: not.
    """
    from egress.cli.check import check as run_check

    raise typer.Exit(run_check(tuple(files or ()), config, strict=strict, as_json=as_json))


@app.command(rich_help_panel=_POLICY)
def explain(
    target: Annotated[
        str, typer.Argument(metavar="URL|HOST:PORT", help="What is asked for. HOST:PORT asks for a connection only.")
    ],
    method: Annotated[
        str | None, typer.Option("--method", "-X", help="Request method. Default: GET, with a body POST.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME:VALUE", help="A field; may be repeated.")
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(metavar="TEXT|@FILE", help="Body of the request; application/json unless a header says else."),
    ] = None,
    message: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT|@FILE", help="A text message on the WebSocket that is opened; may be repeated."),
    ] = None,
    binary_message: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT|@FILE", help="A binary message, after those of text; may be repeated."),
    ] = None,
    binary: Annotated[str | None, typer.Option(help="Path of the program that asks.")] = None,
    ancestor: Annotated[
        list[str] | None, typer.Option(help="Path of a program above it, nearest first; may be repeated.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Agent of the settings file that asks.")] = None,
    policy: Policy = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Decide one request as the proxy would, without a network, and say which rule decided and why others did not.

    Bodies and WebSocket messages are read as the endpoint's protocol reads them.

    Exit code 0: allowed. 10: denied. 11: cannot be told from this alone.
    """
    from egress.cli.explain import Inquiry
    from egress.cli.explain import explain as run_explain

    inquiry = Inquiry(
        target, method, binary, tuple(ancestor or ()), agent,
        tuple(header or ()), body, tuple(message or ()), tuple(binary_message or ()),
    )  # fmt: skip
    raise typer.Exit(run_explain(inquiry, tuple(policy or ()), config, as_json=as_json))


@app.command("test", rich_help_panel=_POLICY)
def policy_tests(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Test files. Default: `policy.tests` of the settings file.", show_default=False),
    ] = None,
    policy: Policy = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run policy tests: requests with the answer they must get.

    Tests stand in files of their own or under `tests:` in the policy. Each has a `request` (`url`, `method`, `headers`
    and `body`, which is sent as JSON when it is not text), for a WebSocket its `messages`, and what to `expect`.

    Exit code 0: all pass. 1: some do not.
    """
    from egress.cli.test import test as run_test

    raise typer.Exit(run_test(tuple(files or ()), tuple(policy or ()), config, as_json=as_json))


@app.command(rich_help_panel=_SET_UP)
def env(
    config: Config = None,
    agent: Annotated[str | None, typer.Option(help="Agent of the settings file; its password is printed too.")] = None,
    shell: Annotated[Shell, typer.Option("--format", help="How to print.")] = Shell.SH,
    java: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write a trust store for Java into this directory.")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Ready file of the running proxy that is meant.")] = None,
) -> None:
    """Print the variables that make programs use the proxy and trust its certificate.

    In a shell: eval "$(egress env)"
    """
    from egress.cli.env import print_environment

    print_environment(config=config, ready_file=ready_file, agent=agent, shell=shell, java=java)


@app.command(rich_help_panel=_SET_UP)
def doctor(
    config: Config = None,
    name: Annotated[str | None, typer.Option(metavar="HOST", help="A name to look up.")] = None,
    as_json: Json = False,
) -> None:
    """Look for what keeps a proxy from working here: ports, certificates, identity, file modes, names.

    Exit code 0: nothing does. 1: something does.
    """
    from egress.cli.doctor import doctor as run_doctor

    raise typer.Exit(run_doctor(config, name, as_json=as_json))


@app.command(rich_help_panel=_SET_UP)
def reference(
    topic: Annotated[Topic | None, typer.Argument(help="Default: all.", show_default=False)] = None,
) -> None:
    """Print the reference as Markdown: settings, refusal codes, limits, commands, address ranges."""
    from egress.cli.reference import print_reference

    print_reference(app, tuple(Topic) if topic is None else (topic,))


@proxy_app.command("status")
def proxy_status(config: Config = None, as_json: Json = False) -> None:
    """Every corporate proxy, whether it answers now, and which destination takes which.

    Exit code 0: all are up. 1: some are not.
    """
    from egress.cli.proxy import status

    raise typer.Exit(status(config, as_json=as_json))


@proxy_app.command("test")
def proxy_test(
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A destination.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Take the way to a destination: the plan, what each proxy answered, and the certificate at its end.

    Exit code 0: it was reached. 1: not.
    """
    from egress.cli.proxy import test

    raise typer.Exit(test(target, config, as_json=as_json))


Name = Annotated[str, typer.Argument(metavar="PROVIDER[:KEY]", help="A provider, or one of its keys.")]


@credentials_app.command("list")
def credentials_list(config: Config = None, as_json: Json = False) -> None:
    """Every key: where its value comes from and belongs, when it expires, how old it is, why it is missing."""
    from egress.cli import credentials

    credentials.list_credentials(config, as_json=as_json)


@credentials_app.command("check")
def credentials_check(config: Config = None, as_json: Json = False) -> None:
    """Read the providers file and fetch every value once, without a running proxy; say which cannot be had and why.

    Exit code 0: all can be. 1: some cannot. 2: the file is invalid.
    """
    from egress.cli import credentials

    raise typer.Exit(credentials.check(config, as_json=as_json))


@credentials_app.command("refresh")
def credentials_refresh(name: Name, config: Config = None) -> None:
    """Fetch values now instead of when they are due."""
    from egress.cli import credentials

    credentials.refresh(config, name)


@credentials_app.command("revoke")
def credentials_revoke(name: Name, config: Config = None) -> None:
    """Make every placeholder that was given out for it worthless, also in programs that run."""
    from egress.cli import credentials

    credentials.revoke(config, name)


Profiles = Annotated[
    list[Path] | None,
    typer.Option("--profiles", metavar="DIR", help="Directory of own profiles. Default: those of the providers file."),
]


@profiles_app.command("list")
def profiles_list(profiles: Profiles = None, config: Config = None, as_json: Json = False) -> None:
    """Every profile with its environment variables."""
    from egress.cli import profiles as command

    command.list_profiles(command.directories_of(config, profiles or ()), as_json=as_json)


@profiles_app.command("show")
def profiles_show(
    name: Annotated[str, typer.Argument(metavar="PROFILE", help="Id of a profile, or an alias such as `gh`.")],
    profiles: Profiles = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """One profile: its credentials, where they stand in a request, and where they may go.

    Exit code 2: there is none of that name.
    """
    from egress.cli import profiles as command

    command.show_profile(name, command.directories_of(config, profiles or ()), as_json=as_json)


@profiles_app.command("lint")
def profiles_lint(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE|DIR...", help="Profiles, or directories of them.")],
    as_json: Json = False,
) -> None:
    """Tell everything that is wrong with own profiles, with file, line and what to write instead.

    Exit code 0: fine. 2: not.
    """
    from egress.cli import profiles as command

    raise typer.Exit(command.lint_profiles(paths, as_json=as_json))


@ca_app.command("init")
def ca_init(directory: CaDirectory = None, config: Config = None) -> None:
    """Make the authority, unless there is one already."""
    from egress.cli import ca

    ca.init(ca.directory_of(directory, config))


@ca_app.command("rotate")
def ca_rotate(directory: CaDirectory = None, config: Config = None) -> None:
    """Replace the authority. Workloads must be given the new certificate; a running proxy must be restarted."""
    from egress.cli import ca

    ca.rotate(ca.directory_of(directory, config))


@ca_app.command("show")
def ca_show(directory: CaDirectory = None, config: Config = None, as_json: Json = False) -> None:
    """Name, fingerprint and life of the authority. The key is never shown."""
    from egress.cli import ca

    show = ca.show_facts if as_json else ca.show_text
    show(ca.directory_of(directory, config))


@ca_app.command("export")
def ca_export(target: Target = None, directory: CaDirectory = None, config: Config = None) -> None:
    """The certificate as PEM, for clients that add it to their own roots."""
    from egress.cli import ca

    ca.export(ca.directory_of(directory, config), target)


@ca_app.command("bundle")
def ca_bundle(target: Target = None, directory: CaDirectory = None, config: Config = None) -> None:
    """The system's roots and the certificate as PEM, for clients that take one file instead of their own roots."""
    from egress.cli import ca

    ca.export_bundle(ca.directory_of(directory, config), target)


def main() -> None:
    """Entry point of the `egress` command."""
    try:
        app()
    except EgressError as error:
        sys.stderr.write(f"egress: {error}\n")
        raise SystemExit(1) from None
    except BrokenPipeError:
        # The reader of our output left, as `head` does. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
