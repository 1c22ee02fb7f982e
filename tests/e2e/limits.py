"""What a comparison with the brokers' logs must not leave aside: see `compare`."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from streaming.embedded.truth import REBALANCE_TIMEOUT, SESSION_EXPIRED, TruthEvent

MOST = {"TIE": 0.02, "UNHEARD": 0.03, "WITHIN": 0.03, "UNTOLD": 0.06}
"""The largest share of all rows that may have a verdict which says that nobody can know better. A tie has two
rows."""
FEW = {"UNHEARD": 3, "WITHIN": 3, "UNTOLD": 6}
"""So many are no sign of anything, as in a short run."""
MOST_UNNAMED = 0.15  # of all members: clients that come back again and again behind stalled writes
LEAST_REACHED = 0.95  # of the removals in the log
STALLED = "telemetry-stalled"
BLAMES = ("coordinator-paused", STALLED)
NEAR_MS = 60_000  # a broker is away for up to 20 s, and the sessions and join phases after that last 20 s
EARLY_MS = 5_000  # an action is noted before or after it is done
BROKER = re.compile(r"broker-\d+")


class Judged(Protocol):
    """A row of the comparison."""

    @property
    def verdict(self) -> str: ...


def within(rules: Mapping[str, Sequence[Judged]], unnamed: int, members: int) -> list[str]:
    """Return for people which verdicts that excuse a difference are too many."""
    verdicts = Counter(row.verdict for rows in rules.values() for row in rows)
    total = verdicts.total()
    found = [
        f"{verdicts[name]} of {total} are {name}: at most {most:.0%} may be"
        for name, most in MOST.items()
        if verdicts[name] > max(most * total, FEW.get(name, 0))
    ]
    if unnamed > MOST_UNNAMED * members:
        found.append(f"{unnamed} of {members} members are unnamed: at most {MOST_UNNAMED:.0%} may be")
    return found


def reached(judged: Iterable[TruthEvent], logged: Iterable[TruthEvent]) -> bool:
    """Print how much of the log the recording reaches; tell whether that is nearly all, and anything."""
    count, total = _removals(judged), _removals(logged)
    print(f"{count} of {total} logged removals judged (at least {LEAST_REACHED:.0%} have to be)")
    return count > 0 and count >= LEAST_REACHED * total


def _removals(events: Iterable[TruthEvent]) -> int:
    return sum(event.kind in (SESSION_EXPIRED, REBALANCE_TIMEOUT) for event in events)


def pages(printed: Iterable[dict]) -> str:
    """Return for people how many incidents of each rule paged."""
    paged = {line["incident_id"]: line["rule"] for line in printed if line.get("severity") == "page"}
    return "pages: " + (", ".join(f"{count} {rule}" for rule, count in Counter(paged.values()).most_common()) or "none")


def blamed(printed: Iterable[dict], actions: Iterable[dict]) -> list[str]:
    """Return for people the reports that blame a broker to which nothing was done shortly before.

    A move is blamed on the broker that took over, so an action on any broker explains it. Telemetry stands still for
    15 s before that is reported. It may be the broker's death meanwhile that kept its lines from coming again.
    """
    done = [(name, action["at_ms"]) for action in actions for name in BROKER.findall(action["action"])]
    found = []
    for line in printed:
        if line["kind"] != "incident" or line["transition"] != "opened" or line["rule"] not in BLAMES:
            continue
        at_ms, moved = line["opened_ms"], line["cause"] == "coordinator-moved"
        until_ms = max(at_ms + EARLY_MS, line["at_ms"] if line["rule"] == STALLED else 0)
        near = (name for name, done_ms in done if at_ms - NEAR_MS <= done_ms <= until_ms)
        if not any(moved or name == line["broker"] for name in near):
            found.append(f"blamed for nothing at {at_ms}: {line['summary']}")
    return found
