"""How each scenario is classified (`classes.toml`), and what monitor and coordinator see differently in it."""

import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from coordinator_model.decode.source_row import TELEMETRY
from tests.oracle.judge import COORDINATOR_PAUSED, Disagreement, judge
from tests.oracle.life import Life
from tests.oracle.scenarios.record import Scenario

TABLES = tomllib.loads(Path(__file__).with_name("classes.toml").read_text())
CLASSES = {name: [method for table in tables for method in table["scenarios"]] for name, tables in TABLES.items()}
INVISIBLE, BY_HAND, JUDGED = "invisible", "by-hand", "judged"
HEARTBEAT, ACCEPTED = b'HEARTBEAT"', (b'"errorCode":0', b'"errorCode":27')


def wrong(scenario: Scenario) -> list[Disagreement]:
    """Return what monitor and coordinator see differently.

    The cause of a removal may be unknown if no heartbeat of its member was ever seen: a filter may have hidden them,
    because every client that joins sends some. The mock clock jumps, which looks like a pause of the broker: so that a
    broker is blamed is no fault.
    """
    found = [each for each in judge(scenario.life).disagreements if each.rule != COORDINATOR_PAUSED]
    return [each for each in found if each.what != "unknown" or _is_heard(scenario.life, each.member_id)]


def _is_heard(life: Life, member_id: str) -> bool:
    lines = (row.value or b"" for row in life.rows if row.source == TELEMETRY)
    own = (line for line in lines if member_id.encode() in line and HEARTBEAT in line)
    return any(error in line for line in own for error in ACCEPTED)


def compared(scenarios: Iterable[Scenario]) -> Counter[str]:
    """Count removals that both sides have, by rule; looks; and removals with an unknown cause."""
    counted = Counter[str]()
    for judgement in (judge(scenario.life) for scenario in scenarios):
        counted += judgement.compared
        counted["unknown"] += sum(each.what == "unknown" for each in judgement.disagreements)
        counted["unknown"] += judgement.listed["never heard, nor was anybody since it joined"]
    return counted
