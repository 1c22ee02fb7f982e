"""What a capture that holds both sources tells by each alone, against the brokers' logs and against each other.

    python -m tests.e2e.tiers CAPTURE.jsonl.gz …      exit 1 where the coordinator's log differs from the brokers' logs

`python -m tests.e2e.chaos --coordinator-log …` makes such captures. The model never reads both here: the brokers' logs
are the judge, and the coordinator's log is part of them.
"""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

from coordinator_model.decode.telemetry.shipped import is_coordinator_line
from streaming.embedded.truth import REBALANCE_TIMEOUT, SESSION_EXPIRED
from tests.e2e.compare import opened_twice, rebalance_rows, refuted, replay, score, session_rows, table
from tests.e2e.world import Played

REQUEST_LOG, COORDINATOR_LOG = "request-log", "coordinator-log"
BESIDE = ("toml", "truth.json", "groups.json", "actions.json", "clients.json", "moments.json")


def stripped(played: Played, kept: str) -> Played:
    """Write the capture anew with the lines of one source; offsets are numbered anew, for nothing was lost."""
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


def judge(played: Played) -> bool:
    """Print what each source tells alone; tell whether the coordinator's log tells what the brokers' logs do."""
    told = {kept: replay(stripped(played, kept)) for kept in (REQUEST_LOG, COORDINATOR_LOG)}
    summaries = {kept: next(line for line in printed if line["kind"] == "summary") for kept, printed in told.items()}
    # Lines that come only when something happens do not tell until when they were recorded.
    summaries[COORDINATOR_LOG]["coverage"]["brokers"] = summaries[REQUEST_LOG]["coverage"]["brokers"]
    bad = []
    for kept, printed in told.items():
        rules = {
            SESSION_EXPIRED: session_rows(played.truth, printed),
            REBALANCE_TIMEOUT: rebalance_rows(played.truth, printed),
        }
        print(f"{played.capture}, {kept} alone: {len(refuted(printed))} refuted, {len(opened_twice(printed))} twice")
        for rule, rows in rules.items():
            print(score(rule, rows))
        wrong = [row for rows in rules.values() for row in rows if row.verdict != "ok"]
        if wrong:
            print(table(wrong))
        bad += wrong if kept == COORDINATOR_LOG else []
    return not bad


def main() -> None:
    sys.exit(not min(judge(Played(Path(n).name.removesuffix(".jsonl.gz"), Path(n).parent)) for n in sys.argv[1:]))


if __name__ == "__main__":
    main()
