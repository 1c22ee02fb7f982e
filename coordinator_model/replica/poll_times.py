"""How long a client goes between polls, as far as it reports that: a histogram of bounded size, and what it means.

A report has the age of the last poll. If the next report has a younger poll, the time between the two polls was at
least the age in the first report. Between two reports only the longest time between polls counts, once. A Java client's
metrics have the longest recent time between polls, so a number that is reported again is the same measurement.

So the number of polls is not known, only the number of times that were reported. Lengths are accurate to within a
fifth.
"""

import math
from typing import NamedTuple

from coordinator_model.replica.member import Member
from coordinator_model.wording import seconds

STEP = 2**0.25
SHORTEST_MS = 1_000
"""Shorter times are not distinguished: reports come once a second."""
LONGEST_MS = 2**31
FEW = 20
"""From fewer times than this nothing is concluded."""
QUANTILE = 0.999


class PollTimes(NamedTuple):
    """How many times between a member's polls were reported, and which of them 99.9 % do not exceed."""

    told: int
    p999_ms: int


def note(member: Member, interval_ms: int) -> None:
    """Count one time between two polls."""
    bucket = math.ceil(math.log(max(interval_ms, SHORTEST_MS) / SHORTEST_MS, STEP) - 1e-9)
    key = str(bucket)  # as JSON has it
    member.poll_times[key] = member.poll_times.get(key, 0) + 1


def reported(member: Member, poll_age_ms: int, at_ms: int) -> None:
    """Take a client's report: if it polled since the last one, a time between polls has ended."""
    before_ms, age_ms = member.poll_reported_ms, member.poll_age_ms
    if before_ms is not None and age_ms is not None and at_ms - poll_age_ms > before_ms:
        note(member, age_ms)


def pushed(member: Member, longest_ms: int | None) -> None:
    """Take the longest time between polls in a client's metrics."""
    if longest_ms is not None and longest_ms != member.longest_poll_ms:
        member.longest_poll_ms = longest_ms
        note(member, longest_ms)


def poll_times(member: Member) -> PollTimes | None:
    """Return what a member's polls were like; None: too few are known."""
    told = sum(member.poll_times.values())
    if told < FEW:
        return None
    seen = 0
    for bucket in sorted(map(int, member.poll_times)):
        seen += member.poll_times[str(bucket)]
        if seen >= told * QUANTILE:
            break
    return PollTimes(told, min(LONGEST_MS, round(SHORTEST_MS * STEP**bucket)))


def advice(member: Member, limit_ms: int | None) -> str:
    """Say what a member's polls mean for its limit; empty: not known."""
    times = poll_times(member)
    if times is None or not limit_ms:
        return ""
    polls = f"p99.9 of this member's polls is {seconds(times.p999_ms)}, the limit {seconds(limit_ms)}"
    if times.p999_ms * 2 <= limit_ms:
        return f"; {polls}: the limit leaves room, look for what held it up"
    return f"; {polls}: raise max.poll.interval.ms or poll fewer records at once (max.poll.records)"


def detail(member: Member) -> dict[str, int]:
    """Return the numbers for a finding's detail."""
    times = poll_times(member)
    return {} if times is None else {"polls_told": times.told, "poll_p999_ms": times.p999_ms}
