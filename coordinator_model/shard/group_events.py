"""Applies the events of groups: an event is replayed on its group's replica, and the group is evaluated.

An event that must not change its group is only counted (``admission``). Two kinds of events cost less. An answer that
only changes counts is applied without loading the heartbeats of all members, because clients that are not members may
cause thousands of such answers. A plain heartbeat is applied and judged for its member alone; this is how every member
gets onto the fast path.
"""

from collections.abc import Callable

from coordinator_model.commit_block import group_in, place_of
from coordinator_model.decode.records import RecordType
from coordinator_model.events import (
    LOADED,
    RECORD_RANK,
    ConsumerHeartbeat,
    CoordinatorLine,
    Heartbeat,
    JoinAnswered,
    LeaveAnswered,
    OffsetCommitted,
    RecordRead,
    SyncAnswered,
)
from coordinator_model.replica.admission import UNKNOWN_GROUP, why_not
from coordinator_model.replica.advance import take_heartbeats, take_over
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.refusals import JOIN_REFUSALS, counts_to_report, is_idle
from coordinator_model.replica.replay import (
    GroupEvent,
    deposed_leave,
    deposed_sync,
    disputed_heartbeat,
    plain_heartbeat,
    replay,
)
from coordinator_model.rules.registry import HEARTBEAT_RULES
from coordinator_model.rules.session import judge
from coordinator_model.shard.broker_reports import BrokerReports
from coordinator_model.shard.commit_times import COMMIT_MEMORY_MS, CommitRow
from coordinator_model.shard.group_judgement import GroupJudgement
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.heartbeat_table import FAST_PATH_TYPES
from coordinator_model.shard.heartbeat_update import forget_shown
from coordinator_model.states import GroupState, GroupType


class GroupEvents:
    """Applies the events of one shard's groups."""

    def __init__(self, groups: Groups, judgement: GroupJudgement, brokers: BrokerReports) -> None:
        self._groups, self._judgement, self._brokers = groups, judgement, brokers

    def apply(self, event: GroupEvent) -> None:
        """Replay one event on its group's replica, and evaluate the group."""
        self._groups.outputs.count(_kind(event))
        with self._judgement.isolated(event.group, event[0], event):
            group = event.group
            self._groups.drop_if_gone_long_ago(group, event[0])
            replica = self._groups.group_store.replica(group) if group in self._groups.group_store else None
            refused = why_not(replica, event, loading=self._groups.clock.waiting)
            if refused is None:
                if replica is None or not self._apply_to_counts(replica, event):
                    self._replay(event)
            else:
                self._groups.outputs.count(refused)
                self._note_refused_join(event, refused)

    def committed(self, row: CommitRow) -> None:
        """Apply a commit's tombstone, or a commit of a partition without a slot. It may begin or end a simple group."""
        record_ms, offset, key, gone = row
        times, group = self._groups.commit_times, group_in(key)
        is_known = group in self._groups.group_store and group not in self._groups.memory.deleted
        if gone:
            times.drop(key)
            if not is_known:
                self._groups.outputs.count(UNKNOWN_GROUP)
            if not is_known or not times.drop_simple(group, key):
                return
        elif self._is_sign_of_life(record_ms):
            times.add(key, record_ms)
        if gone or not is_known:
            event = OffsetCommitted(record_ms, RECORD_RANK, "", self._groups.shard, offset, *place_of(key), gone)
            with self._judgement.isolated(group, record_ms, event):
                self._groups.drop_if_gone_long_ago(group, record_ms)
                if not gone:
                    times.begin_simple(group)
                self._replay(event)
        if not gone:
            times.keep_simple(group, key)

    def _is_sign_of_life(self, record_ms: int) -> bool:
        """Tell whether a commit may have restarted a session timer that is still running."""
        horizon_ms = record_ms + COMMIT_MEMORY_MS
        return horizon_ms > self._groups.settings.live_from_ms and horizon_ms > self._groups.clock.progress_ms

    def logged(self, event: CoordinatorLine) -> None:
        """Apply a line of the coordinator's own log: about a group, or about all groups of the shard.

        A coordinator that loads the groups restarts their session timers. A line that names a partition other than the
        group's is only counted, because the group's coordinator did not write it.
        """
        if event.shard not in (-1, self._groups.shard):
            self._groups.outputs.count("lines_of_another_shard")
            self._groups.outputs.count(_kind(event))
        elif event.group:
            self.apply(event._replace(beside_requests=self._is_beside_requests(event)))
        else:
            self._groups.outputs.count(_kind(event))
            if self._groups.clock.by_records and event.what == LOADED:
                self._groups.clock.loaded(event.broker, event.order_ms)

    def _is_beside_requests(self, event: CoordinatorLine) -> bool:
        """Tell whether a request log covers the instant of a line of the coordinator's own log."""
        covered = self._groups.clock.is_logged(event.broker, event.order_ms)
        self._groups.outputs.count("lines_beside_request_log", int(covered))
        return covered

    def disputed(self, event: Heartbeat) -> None:
        """Apply a heartbeat that was accepted by a broker that may be the next coordinator."""
        self._apply_to_known(event, lambda replica: disputed_heartbeat(replica, event))

    def left_deposed(self, event: LeaveAnswered) -> None:
        """Apply a LeaveGroup of the classic protocol that a deposed coordinator accepted."""
        progress_ms = self._groups.clock.progress_ms
        self._apply_to_known(
            event, lambda replica: deposed_leave(replica, event, self._groups.context(event.group, progress_ms))
        )

    def synced_deposed(self, event: SyncAnswered) -> None:
        """Apply a leader's SyncGroup that a deposed coordinator accepted."""
        progress_ms = self._groups.clock.progress_ms
        self._apply_to_known(
            event, lambda replica: deposed_sync(replica, event, self._groups.context(event.group, progress_ms))
        )

    def _apply_to_known(
        self, event: Heartbeat | LeaveAnswered | SyncAnswered, apply: Callable[[GroupReplica], None]
    ) -> None:
        """Apply an event of a broker that may not be the coordinator, if its group is known, and evaluate the group."""
        group, progress_ms = event.group, self._groups.clock.progress_ms
        if group not in self._groups.group_store:
            return
        with self._judgement.isolated(group, event[0], event):
            replica = self._groups.replica(group)
            apply(replica)
            self._groups.group_store.touch(group)
            self._judgement.evaluate(replica, progress_ms, event[0])

    def taken_over(self, answered_ms: int, at_ms: int, claimed: tuple[str, int] | None = None) -> None:
        """Note that another coordinator has loaded the groups. Its predecessor last answered at ``answered_ms``.

        ``claimed``: that coordinator, and since when it has answered although metadata named its predecessor.
        """
        for group in self._groups.group_store.names():
            with self._judgement.isolated(group, at_ms):
                replica = self._groups.replica(group)
                context = self._groups.context(group, self._groups.clock.progress_ms)
                if take_over(replica, answered_ms, at_ms, context, claimed):
                    self._groups.group_store.touch(group)
                    self._groups.changed.add(group)
                    self._judgement.evaluate(replica, self._groups.clock.progress_ms, at_ms)

    def _note_refused_join(self, event: GroupEvent, refused: str) -> None:
        """Count a refused join for its client, if its group is not known."""
        if refused != UNKNOWN_GROUP or not isinstance(event, JoinAnswered | ConsumerHeartbeat):
            return
        if event.error in JOIN_REFUSALS and event[0] >= self._groups.settings.live_from_ms:
            self._brokers.report(self._groups.memory.watch.refused_join(event))

    def _apply_to_counts(self, replica: GroupReplica, event: GroupEvent) -> bool:
        """Apply an answer if it only changes counts; return whether it was applied.

        The cost does not depend on the size of the group: only the sender's heartbeats are fetched. The group is
        evaluated only if the counts that are reported have changed.
        """
        if not is_idle(replica, event):
            return False
        if isinstance(event, JoinAnswered):
            take_heartbeats(replica, self._groups.heartbeat_table.heard_of(event.group, event.request_member_id))
        before = counts_to_report(replica)
        replay(replica, event, self._groups.context(event.group, self._groups.clock.progress_ms))
        self._groups.group_store.touch(event.group)
        if counts_to_report(replica) != before:
            self._judgement.evaluate(self._groups.replica(event.group), self._groups.clock.progress_ms, event[0])
            self._groups.changed.add(event.group)
        return True

    def _replay(self, event: GroupEvent) -> None:
        """Replay one event that may change its group, and evaluate the group."""
        group = event.group
        replica = self._groups.replica(group)
        context = self._groups.context(group, self._groups.clock.progress_ms)
        if isinstance(event, Heartbeat) and self._apply_to_member(replica, event, context):
            return
        forget_shown(group, self._groups.heartbeat_table)
        before = (replica.state, replica.generation, len(replica.members), replica.deleted)
        replay(replica, event, context)
        self._groups.group_store.touch(group)
        if replica.type is not GroupType.SIMPLE:
            self._groups.commit_times.end_simple(group)
        if not replica.deleted:
            self._groups.memory.deleted.pop(group, None)
        if not isinstance(event, Heartbeat) or before != (
            replica.state,
            replica.generation,
            len(replica.members),
            replica.deleted,
        ):
            self._groups.changed.add(group)
        if (
            isinstance(event, RecordRead)
            and event.record_type != RecordType.GROUP_METADATA
            and self._write_end_will_show(event)
        ):
            self._await_write(replica, max(event[0], self._groups.clock.progress_ms))
        else:
            self._judgement.evaluate(replica, self._groups.clock.progress_ms, event[0])

    def _write_end_will_show(self, event: RecordRead) -> bool:
        """Tell whether a later event will show that all records of a write were read: a line, or another record."""
        if self._groups.clock.by_records:
            return event[0] >= self._groups.settings.live_from_ms
        return bool(self._groups.clock.coordinator)

    def _await_write(self, replica: GroupReplica, due_ms: int) -> None:
        """Postpone the evaluation of a group until all records of a write have come.

        Until then the group may seem to be empty, or to have no leader. All records of a write have one timestamp, so a
        later line of the coordinator, or a later write, comes after them.
        """
        self._groups.heartbeat_table.copy_from(replica, {}, set())
        self._groups.agenda.look_at(replica.group, due_ms)

    def _apply_to_member(self, replica: GroupReplica, event: Heartbeat, context: JudgementContext) -> bool:
        """Apply a heartbeat of a quiet group if it only restarts its member's session timer.

        Return whether it was applied. Then only the member is judged, not the group.
        """
        reported = self._groups.memory.reported.get(replica.group, ())
        quiet = not any(finding.rule in HEARTBEAT_RULES for finding in reported)
        plain = event.error == 0 and quiet and replica.state is GroupState.STABLE and replica.type in FAST_PATH_TYPES
        if not plain or context.waiting or replica.stable_seen_ms is None:
            return False
        heard = plain_heartbeat(replica, event)
        if heard is None:
            return False
        if heard.told_more:
            self._groups.group_store.touch(replica.group)
        verdict = judge(replica, heard.member, context)
        if verdict.finding is not None:
            return False
        self._groups.heartbeat_table.put(event.group, heard.member, verdict.due_ms, fast=True)
        if verdict.due_ms is not None:
            self._groups.agenda.due_ms = min(self._groups.agenda.due_ms, verdict.due_ms)
        return True


def _kind(event: GroupEvent) -> str:
    return f"record_{event.record_type}" if isinstance(event, RecordRead) else type(event).__name__
