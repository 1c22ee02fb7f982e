"""What each of the two sources of a capture shows alone, compared with the brokers' logs and with the other one.

    python -m tests.e2e.tiers CAPTURE.jsonl.gz …      exit 1 if the coordinator's log differs from the brokers' logs

`python -m tests.e2e.chaos --coordinator-log …` makes such captures. The model never reads both here: the brokers' logs
are the truth, and the coordinator's log is part of them.
"""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from coordinator_model.decode.telemetry.shipped import is_coordinator_line
from streaming.embedded.truth import REBALANCE_TIMEOUT, SESSION_EXPIRED, TruthEvent
from tests.e2e.compare import Row, opened_twice, rebalance_rows, refuted, replay, score, session_rows, table
from tests.e2e.world import Played

REQUEST_LOG, COORDINATOR_LOG = "request-log", "coordinator-log"
BESIDE = ("toml", "truth.json", "groups.json", "actions.json", "clients.json", "moments.json")


def stripped(played: Played, kept: str) -> Played:
    """Write the capture again with the lines of one source; offsets are renumbered, because nothing was lost."""
    alone = Played(f"{played.name}-{kept}", played.folder)
    offsets: Counter[tuple[str, int]] = Counter()
    with gzip.open(played.capture, "rt") as rows, gzip.open(alone.capture, "wt", compresslevel=5) as out:
        for text in rows:
            row = json.loads(text)
            if row["source"] == "telemetry":
                if is_coordinator_line(row["value"].encode()) != (kept == COORDINATOR_LOG):
                    continue
                place = (row["topic"], row["partition"])
                row["offset"] = offsets[place]
                offsets[place] += 1
            out.write(json.dumps(row) + "\n")
    for suffix in BESIDE:
        there, here = played.folder / f"{played.name}.{suffix}", played.folder / f"{alone.name}.{suffix}"
        here.unlink(missing_ok=True)
        if there.exists():
            here.symlink_to(there.resolve())
    return alone


def shipped(played: Played) -> set[tuple[int, str]]:
    """Return when the coordinator's lines that reached the topic were written, and what they say.

    A broker that is killed loses its newest lines.
    """
    with gzip.open(played.capture, "rt") as rows:
        lines = [row for row in map(json.loads, rows) if row["source"] == "telemetry"]
    logged = [row for row in lines if is_coordinator_line(row["value"].encode())]
    return {(row["timestamp_ms"], row["value"].partition("] ")[2]) for row in logged}


def without_line(rows: list[Row], truth: list[TruthEvent], lines: set[tuple[int, str]]) -> list[Row]:
    """Return what is missing because its line was lost on its way: that source alone cannot show it."""
    lost = {(event.group, event.member_id, event.at_ms) for event in truth if (event.at_ms, event.line) not in lines}
    return [row for row in rows if row.verdict == "MISSING" and (row.group, row.member_id, row.log_ms) in lost]


def judge(played: Played) -> bool:
    """Print what each source shows alone; tell whether the coordinator's log shows what the brokers' logs do.

    It must also name every expiry that the request log names, as far as its lines arrived.
    """
    told = {kept: replay(stripped(played, kept)) for kept in (REQUEST_LOG, COORDINATOR_LOG)}
    summaries = {kept: next(line for line in printed if line["kind"] == "summary") for kept, printed in told.items()}
    # Lines that come only when something happens do not show until when they were recorded.
    summaries[COORDINATOR_LOG]["coverage"]["brokers"] = summaries[REQUEST_LOG]["coverage"]["brokers"]
    rows = {kept: _rows(played, kept, printed) for kept, printed in told.items()}
    wrong = {kept: [row for row in rows[kept] if row.verdict != "ok"] for kept in rows}
    if wrong[REQUEST_LOG]:
        print(f"{REQUEST_LOG}:\n{table(wrong[REQUEST_LOG])}")
    lost = without_line(wrong[COORDINATOR_LOG], played.truth, shipped(played))
    bad = [row for row in wrong[COORDINATOR_LOG] if row not in lost]
    print(f"{len(lost)} more whose line never reached the topic")
    if bad:
        print(f"{COORDINATOR_LOG}:\n{table(bad)}")
    only = _named(rows[REQUEST_LOG]) - _named(rows[COORDINATOR_LOG]) - {_name(row) for row in lost}
    print(f"{len(only)} that the request log names alone, but for those", *sorted(only), sep="\n")
    return not bad and not only


def _rows(played: Played, kept: str, printed: list[dict[str, Any]]) -> list[Row]:
    print(f"{played.capture}, {kept} alone: {len(refuted(printed))} refuted, {len(opened_twice(printed))} twice")
    rules = {
        SESSION_EXPIRED: session_rows(played.truth, printed),
        REBALANCE_TIMEOUT: rebalance_rows(played.truth, printed),
    }
    for rule, rows in rules.items():
        print(score(rule, rows))
    return [row for rows in rules.values() for row in rows]


def _named(rows: list[Row]) -> set[tuple[str, str, str, int | None]]:
    return {_name(row) for row in rows if row.verdict == "ok"}


def _name(row: Row) -> tuple[str, str, str, int | None]:
    return row.rule, row.group, row.member_id, row.log_ms


def main() -> None:
    sys.exit(not min(judge(Played(Path(n).name.removesuffix(".jsonl.gz"), Path(n).parent)) for n in sys.argv[1:]))


if __name__ == "__main__":
    main()
