"""The tables a run ends with, as Markdown, and the raw samples as JSON."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.goals import GOALS, Goal, Results, cpu_ms, cpu_per_gb, mb_per_s, p50, p99, rate

type Column = tuple[str, Callable[[Results, str], str]]


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _three(results: Results, subject: str) -> str:
    return " / ".join(_number(results.window(subject, f"keep{c}", cpu_ms), 3) for c in (1, 16, 64))


def _latency(window: str, digits: int) -> Callable[[Results, str], str]:
    def cell(results: Results, subject: str) -> str:
        return "/".join(_number(results.window(subject, window, quantile), digits) for quantile in (p50, p99))

    return cell


def _rate(window: str) -> Callable[[Results, str], str]:
    return lambda results, subject: _number(results.window(subject, window, rate), 0)


def _cpu(window: str) -> Callable[[Results, str], str]:
    return lambda results, subject: _number(results.window(subject, window, cpu_ms), 3)


def _bulk(window: str) -> Callable[[Results, str], str]:
    def cell(results: Results, subject: str) -> str:
        per_gb, speed = results.window(subject, window, cpu_per_gb), results.window(subject, window, mb_per_s)
        return f"{_number(per_gb, 2)} ({_number(speed, 0)})"

    return cell


SPEED: Sequence[Column] = (
    ("CPU ms/req c=1/16/64", _three),
    ("c=1 p50/p99 ms", _latency("keep1", 3)),
    ("added p50", lambda results, subject: _number(results.added_p50(subject), 3)),
    ("c=16 req/s", _rate("keep16")),
    ("c=64 req/s", _rate("keep64")),
    ("c=64 p50/p99 ms", _latency("keep64", 2)),
    ("new: CPU ms", _cpu("new")),
    ("new/s", _rate("new")),
    ("new p50/p99 ms", _latency("new", 1)),
    ("HTTP/2 CPU ms/req", _cpu("h2")),
)

VOLUME: Sequence[Column] = (
    ("down CPU s/GB (MB/s)", _bulk("down")),
    ("up CPU s/GB (MB/s)", _bulk("up")),
    ("raw CPU s/GB (MB/s)", _bulk("raw")),
    ("idle MB", lambda r, s: _number(r.whole(s, lambda x: x.idle_kb and x.idle_kb / 1024), 0)),
    ("KB per idle tunnel", lambda r, s: _number(r.whole(s, lambda x: x.tunnel_kb), 0)),
    ("start s", lambda r, s: _number(r.whole(s, lambda x: x.start_seconds), 2)),
)


def render(results: Results, facts: Mapping[str, str]) -> str:
    parts = ["\n".join(f"* {name}: {value}" for name, value in facts.items())]
    parts += [_table(results, columns) for columns in (SPEED, VOLUME)]
    parts.append(_goals(results))
    if results.failures():
        parts.append("Failures:\n" + "\n".join(f"* {failure}" for failure in results.failures()))
    return "\n\n".join(parts)


def _table(results: Results, columns: Sequence[Column]) -> str:
    rows = [["subject", *(title for title, _ in columns)]]
    rows += [[subject, *(cell(results, subject) for _, cell in columns)] for subject in results.subjects()]
    return _markdown(rows)


def _goals(results: Results) -> str:
    rows = [["goal", "measured", "first", "final"]]
    for goal in GOALS:
        value = goal.measure(results)
        rows.append([goal.name, _number(value, 3), _bar(goal, value, goal.first), _bar(goal, value, goal.final)])
    return _markdown(rows)


def _bar(goal: Goal, value: float, bar: float | None) -> str:
    if bar is None:
        return "-"
    verdict = "?" if math.isnan(value) else "met" if goal.met(value, bar, slack=1) else "missed"
    return f"{goal.sense} {bar:.3g} {verdict}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *body))


def save(results: Results, facts: Mapping[str, str], where: Path) -> None:
    samples = [dataclasses.asdict(sample) for sample in results.samples]
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps({"machine": dict(facts), "samples": samples}, indent=1) + "\n")
