"""Which sources show a member. That tells what can be known of it, and how far to trust it.

A new source needs a name in ``Source`` and a function in ``_SHOWS``.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.states import GroupState

REPORTED_WITHIN_MS = 60_000
"""A client reports once a second. One that has been silent for so long does not report any more."""
PUSHED_WITHIN_MS = 600_000
"""Twice the interval of pushes where the subscription names none (KIP-714)."""
_UNWRITTEN = (GroupState.UNKNOWN, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class Source(StrEnum):
    """A source, by its name in the contract."""

    RECORDS = "records"
    REQUEST_LOG = "request-log"
    CLIENT_REPORT = "client-report"
    CLIENT_PUSH = "client-push"


def sources_of(replica: GroupReplica, member: Member, context: JudgementContext) -> list[str]:
    """Return the sources that show a member now, in the order of ``Source``."""
    return [source.value for source, shows in _SHOWS.items() if shows(replica, member, context)]


def counted(sources: Iterable[Iterable[str]]) -> dict[str, int]:
    """Return how many members each source shows; a source that shows none has 0."""
    counts = Counter(name for names in sources for name in names)
    return {source.value: counts[source.value] for source in Source}


def _in_records(replica: GroupReplica, member: Member, _: JudgementContext) -> bool:
    """Tell whether the group's last record lists a member.

    A classic generation has no record before its leader's sync.
    """
    if replica.recorded_generation is not None:
        return any(listed.member_id == member.member_id for listed in replica.recorded)
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


_SHOWS: dict[Source, Callable[[GroupReplica, Member, JudgementContext], bool]] = {
    Source.RECORDS: _in_records,
    Source.REQUEST_LOG: _in_request_log,
    Source.CLIENT_REPORT: _in_reports,
    Source.CLIENT_PUSH: _in_pushes,
}
