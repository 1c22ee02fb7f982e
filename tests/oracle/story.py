"""A life told for people, a line each: its plan, what was logged, recorded and answered.

python -m tests.oracle.story KIND/SEED [--from-ms N] [--until-ms N]
"""

import argparse
import json
from typing import Any

from coordinator_model.decode.records import decode
from coordinator_model.decode.source_row import CLUSTER, OFFSETS, SourceRow
from tests.oracle.driver import Driver
from tests.oracle.judge import judge
from tests.oracle.kinds import draw
from tests.oracle.life import PROBE, Life

Line = tuple[int, str]
METADATA = "METADATA"
LEFT_OUT = {
    *("groupId", "group", "protocols", "protocolType", "protocolName", "throttleTimeMs", "metadata", "assignment"),
    *("subscription", "topology", "skipAssignment"),
}


def lines(life: Life) -> list[Line]:
    """Return what happened, each with the time since the life's start."""
    start_ms = life.plan.start_ms
    told = [(event.at_ms, f"PLAN    {event.do} {event.who} {event.args or ''}") for event in life.plan.events]
    told += [(row["timestamp_ms"] - start_ms, f"LOG {row['broker']}   {_plain(row['message'])}") for row in life.log]
    told += [(row["timestamp_ms"] - start_ms, f"CLIENT  {row['name']} {row['what']}") for row in life.client]
    told += [(row.timestamp_ms - start_ms, _row(row)) for row in life.rows if PROBE not in (row.value or b"")]
    return _without_repetition(sorted(told, key=lambda line: line[0]))


def _without_repetition(told: list[Line]) -> list[Line]:
    """Leave out metadata that says the same as before."""
    kept, before = [], ""
    for line in told:
        if not line[1].startswith(METADATA) or line[1] != before:
            kept.append(line)
        before = line[1] if line[1].startswith(METADATA) else before
    return kept


def _plain(message: str) -> str:
    return message.partition("] ")[2]


def _row(row: SourceRow) -> str:
    if row.source == CLUSTER:
        return f"{METADATA} leader {json.loads(row.value or b'')['leaders'][0]}"
    if row.source == OFFSETS:
        record = decode(row.key, row.value)
        return f"RECORD  {record.type!r} {_brief(record.key)} {_brief(record.value) if record.value else None}"
    line = json.loads((row.value or b"").partition(b":")[2])
    who = f"{line['requestHeader']['clientId']} {line['requestHeader']['requestApiKeyName']}"
    waited = f"waited {line['remoteTimeMs']:.0f}+{line['totalTimeMs'] - line['remoteTimeMs']:.0f}"
    return f"LINE {row.partition}  {who} {waited} {_brief(line['request'])} -> {_brief(line['response'])}"


def _brief(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, list):
        return [_brief(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {k: _brief(v) for k, v in value.items() if k not in LEFT_OUT and v not in (None, "", [], -1)}


def tell(life: Life, from_ms: int = 0, until_ms: int = 10**9) -> None:
    """Print a life's clients, its story, and where monitor and coordinator disagree."""
    for client in life.plan.clients:
        print(client)
    for at_ms, what in lines(life):
        if from_ms <= at_ms <= until_ms:
            print(f"{at_ms:>8} {what}")
    for disagreement in judge(life).disagreements:
        print(disagreement)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("life", help="KIND/SEED, as `lives` prints it")
    parser.add_argument("--from-ms", type=int, default=0)
    parser.add_argument("--until-ms", type=int, default=10**9)
    options = parser.parse_args()
    kind, _, seed = options.life.rpartition("/")
    with Driver() as driver:
        tell(driver.play(draw(kind, int(seed))), options.from_ms, options.until_ms)


if __name__ == "__main__":
    main()
