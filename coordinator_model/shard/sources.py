"""Which sources show a member, that is, what can be known about it and how reliably.

A new source needs an entry in ``_SHOWS``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.states import GroupState

REPORTED_WITHIN_MS = 60_000
"""A client reports once a second. One that has been silent for this long does not report any more."""
PUSHED_WITHIN_MS = 600_000
"""Twice the interval of pushes if the subscription does not set one (KIP-714)."""
_UNWRITTEN = (GroupState.UNKNOWN, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


def sources_of(replica: GroupReplica, member: Member, context: JudgementContext) -> list[str]:
    """Return the sources that show a member now, in the order of ``_SHOWS``."""
    return [source for source, shows in _SHOWS.items() if shows(replica, member, context)]


def counted(sources: Iterable[Iterable[str]]) -> dict[str, int]:
    """Return how many members each source shows, 0 for a source that shows none."""
    counts = Counter(chain.from_iterable(sources))
    return {source: counts[source] for source in _SHOWS}


def _in_records(replica: GroupReplica, member: Member, _: JudgementContext) -> bool:
    """Tell whether the group's last record lists a member.

    A classic generation has no record before its leader's sync.
    """
    if replica.recorded_generation is not None:
        return member.member_id in replica.recorded
    return replica.state not in _UNWRITTEN


def _in_request_log(_: GroupReplica, member: Member, context: JudgementContext) -> bool:
    heard = member.last_heartbeat_ms is not None or member.connection is not None
    return heard and not context.by_records and not context.stalled


def _in_reports(_: GroupReplica, member: Member, context: JudgementContext) -> bool:
    reported_ms = member.poll_reported_ms
    if reported_ms is None or reported_ms == member.pushed_ms:
        return False
    return context.progress_ms - reported_ms <= REPORTED_WITHIN_MS


def _in_pushes(_: GroupReplica, member: Member, context: JudgementContext) -> bool:
    return member.pushed_ms is not None and context.progress_ms - member.pushed_ms <= PUSHED_WITHIN_MS


_SHOWS: Mapping[str, Callable[[GroupReplica, Member, JudgementContext], bool]] = {
    "records": _in_records,
    "request-log": _in_request_log,
    "client-report": _in_reports,
    "client-push": _in_pushes,
}
"""Every source, by its name in the API, and the function that tells whether it shows a member."""
