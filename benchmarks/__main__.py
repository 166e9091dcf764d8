"""`python -m benchmarks`: the table, the gate, or a profile."""

import argparse
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import goals, load, machine, measure, process, profile, report, toolchain
from benchmarks.goals import Results
from benchmarks.lab import Lab, laboratory
from benchmarks.origin import origin
from benchmarks.subjects import SUBJECTS

GATE_SUBJECTS = ("egress", "egress-mitm", "squid", "mitmdump")
DESCRIPTORS = 16384


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.install:
            toolchain.install()
        tools = toolchain.find(options.subjects)
        facts = machine.facts(tools)
        with laboratory(tools) as lab:
            _settle_here(lab)
            return _profile(lab, options) if options.profile else _compare(lab, options, facts)
    except (toolchain.Missing, process.SubjectFailed, load.LoadFailed) as failed:
        print(f"benchmarks: {failed}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, help="interleaved rounds; figures are medians (default 3; gate 2)")
    parser.add_argument("--subjects", type=_subjects, help=f"comma-separated, of: {', '.join(SUBJECTS)}")
    parser.add_argument("--gate", action="store_true", help="short: CPU ratios only, exit 1 if a bar is missed")
    parser.add_argument("--profile", choices=sorted(profile.LOADS), help="profile the first subject under this load")
    parser.add_argument("--out", type=Path, help="write the raw samples here as JSON")
    parser.add_argument("--install", action="store_true", help="install missing Debian packages first (root only)")
    options = parser.parse_args()
    if options.profile:
        options.subjects = (options.subjects or ["egress"])[:1]
    elif options.gate:
        options.subjects = list(GATE_SUBJECTS)
    options.subjects = options.subjects or list(SUBJECTS)
    options.rounds = options.rounds or (2 if options.gate else 3)
    return options


def _subjects(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in SUBJECTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
    return names


def _settle_here(lab: Lab) -> None:
    """Stay off the subject's core, and let children hold a thousand tunnels."""
    os.sched_setaffinity(0, {lab.cores.client})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _profile(lab: Lab, options: argparse.Namespace) -> int:
    with origin(lab):
        print(profile.profile(lab, SUBJECTS[options.subjects[0]], options.profile))
    return 0


def _compare(lab: Lab, options: argparse.Namespace, facts: Mapping[str, str]) -> int:
    results = Results(_rounds(lab, options.subjects, options.rounds, measure.GATE if options.gate else measure.FULL))
    print(report.render(results, facts))
    if options.out:
        report.save(results, facts, options.out)
    missed = goals.gate_failures(results) if options.gate else []
    for line in missed:
        print(f"gate: {line}", file=sys.stderr)
    return 1 if missed else 0


def _rounds(lab: Lab, names: Sequence[str], rounds: int, plan: measure.Plan) -> list[measure.Sample]:
    """Each round starts every subject in turn, so that drift of the machine hits all alike."""
    samples = []
    with origin(lab) as nginx:
        for number in range(rounds):
            for name in names:
                print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
                samples.append(measure.sample(lab, SUBJECTS[name], nginx, plan))
    return samples


if __name__ == "__main__":
    sys.exit(main())
