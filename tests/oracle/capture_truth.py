"""What the monitor says of real captures when their telemetry is bad: `python -m tests.oracle.capture_truth`.

Perturbs the lines of each capture that has a truth file (`perturb.py`), and counts what the monitor says against the
brokers' own logs, as `tests.e2e.compare` does. `docs/truth.md` has the table. Nothing here needs Java.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.source_row import TELEMETRY, SourceRow
from coordinator_model.incidents import to_contract
from coordinator_model.shard.shard import ShardSettings
from coordinator_model.states import MEMBER_REMOVED, Severity
from coordinator_model.thresholds import Thresholds
from streaming.capture.file import open_text, read_rows
from streaming.embedded.truth import TruthEvent
from tests.e2e.compare import Row, opened, rebalance_rows, refuted, session_rows
from tests.e2e.silence import SAME_EXPIRY_MS
from tests.oracle.perturb import OF_SEVERAL_BROKERS, PERTURBATIONS, arrivals

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
SESSION_MS = 7_000
"""`group.consumer.session.timeout.ms` of the brokers that were captured."""
Line = dict[str, Any]
ALL = PERTURBATIONS | OF_SEVERAL_BROKERS
COLUMNS = ("true", "unknown", "missed", "wrong cause", "off", "refuted", "false", "false pages")
OF = {"ok": "true", "WITHIN": "true", "TIE": "true", "OFF": "off"}
UNTOLD = {"broker": "broker-1", "partition": 0, "detail": "", "line": ""}
"""What the oldest truth files do not have."""


def names() -> list[str]:
    """Return the captures that have a truth file, the smallest first."""
    found = [path.name.removesuffix(".truth.json") for path in CAPTURES.glob("*.truth.json")]
    return sorted(found, key=lambda name: (CAPTURES / f"{name}.jsonl.gz").stat().st_size)


def read(name: str) -> tuple[list[SourceRow], list[TruthEvent]]:
    """Return the rows of a capture, and what its brokers logged."""
    with open_text(CAPTURES / f"{name}.jsonl.gz") as lines:
        rows = [row for row in read_rows(lines) if isinstance(row, SourceRow)]
    logged = json.loads((CAPTURES / f"{name}.truth.json").read_text())
    return sorted(rows, key=lambda row: row.timestamp_ms), [TruthEvent(**(UNTOLD | event)) for event in logged]


def count(name: str, how: str) -> tuple[Counter[str], list[str]]:
    """Count what the monitor says about a capture with perturbed telemetry, and list what is false."""
    rows, logged = read(name)
    printed = _replayed(rows, how, seed=f"{name}/{how}")
    if how.startswith("no record keys"):  # brokers have other names then
        _name_brokers(printed[-1], logged)
    found = session_rows(logged, printed) + rebalance_rows(logged, printed)
    pages = {(i["rule"], i["group"], i["member_id"]) for i in printed if i.get("severity") == Severity.PAGE}
    counted, listed = Counter[str](), list[str]()
    for row in found:
        column = OF.get(row.verdict) or _column(row, found, printed)
        counted[column] += column != ""
        if column in ("false", "wrong cause") and row.log_ms is None:
            counted["false pages"] += (row.rule, row.group, row.member_id) in pages
            listed.append(f"{how}: {name}: {column}: {row.rule} {row.group} {row.member_id} {row.deadline_ms}")
    counted["refuted"] = len(refuted(printed))
    return counted, listed


def _replayed(rows: Sequence[SourceRow], how: str, seed: str) -> list[Line]:
    """Return what is printed if the lines come as perturbed. Records from before the recording come first."""
    live_ms = min(row.timestamp_ms for row in rows if row.source == TELEMETRY) - 1_000
    before = [row for row in rows if row.timestamp_ms < live_ms]
    came = arrivals([row for row in rows if row.timestamp_ms >= live_ms], ALL[how], seed)
    thresholds = Thresholds(consumer_session_timeout_ms=SESSION_MS)
    settings = ShardSettings(cluster="c", partitions=0, live_from_ms=0, thresholds=thresholds)
    history = replay_rows([*before, *(arrival.row for arrival in came)], settings)
    return [*map(to_contract, history.transitions), {"kind": "summary", "coverage": history.coverage}]


def _name_brokers(summary: Line, logged: Iterable[TruthEvent]) -> None:
    brokers = summary["coverage"]["brokers"]
    last_ms = max(seen["last_ms"] for seen in brokers.values())
    for event in logged:
        brokers.setdefault(event.broker, {"last_ms": last_ms})


def _column(row: Row, found: Iterable[Row], printed: list[Line]) -> str:
    """Return the column of a removal that is only in the log or only in what is said."""
    if row.log_ms is None:
        others = (other for other in found if other.deadline_ms is None and other.rule != row.rule)
        return "wrong cause" if any(_of_one_removal(row, other) for other in others) else "false"
    if any(_of_one_removal(row, other) for other in found if other.log_ms is None and other.rule != row.rule):
        return ""  # counted as said under another rule
    unknown = (line for line in opened(printed, MEMBER_REMOVED) if line["group"] == row.group)
    own = (line for line in unknown if line["member_id"] == row.member_id)
    return "unknown" if any(abs(line["opened_ms"] - row.log_ms) <= SAME_EXPIRY_MS for line in own) else "missed"


def _of_one_removal(one: Row, other: Row) -> bool:
    at_ms, other_ms = ((row.log_ms or row.deadline_ms or 0) for row in (one, other))
    return (one.group, one.member_id) == (other.group, other.member_id) and abs(at_ms - other_ms) <= SAME_EXPIRY_MS


def table(sums: dict[str, Counter[str]]) -> str:
    """Return the numbers as Markdown."""
    lines = [f"| telemetry | {' | '.join(COLUMNS)} |", "| --- |" + " ---: |" * len(COLUMNS)]
    lines += [f"| {how} | {' | '.join(str(counted[column]) for column in COLUMNS)} |" for how, counted in sums.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--captures", default=",".join(names()), help="names, as kills,java")
    parser.add_argument("--only", default="", help="perturbations whose name has this text")
    options = parser.parse_args()
    began, chosen = time.perf_counter(), options.captures.split(",")
    sums = {how: Counter[str]() for how in ALL if options.only in how}
    for name in chosen:
        for how, counted in sums.items():
            found, listed = count(name, how)
            counted.update(found)
            print(*listed, sep="\n", end="\n" * bool(listed), flush=True)
    print(f"{len(chosen)} captures, {time.perf_counter() - began:.0f} s\n\n{table(sums)}")
    return int(any(counted["false"] for counted in sums.values()))


if __name__ == "__main__":
    sys.exit(main())
