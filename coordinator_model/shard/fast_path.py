"""The plainest of heartbeats: nearly all events, and all that they touch are two numbers in packed arrays.

Whatever makes a member special (a finding, a rebalance, fewer than two heartbeats) sets its slot's generation to -1 in
the ``heartbeat_table``, which sends its next heartbeat to the slow path: its group's replica.
"""

from collections.abc import Iterator

from coordinator_model.brokers.broker_clock import PROOF_STEP_MS
from coordinator_model.heartbeat_block import FastRow
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.heartbeat_table import MAX_INTERVAL_MS
from coordinator_model.shard.schedule import Schedule

_NO_SLOTS: dict[str, int] = {}


class FastPath:
    """The fast path of one shard."""

    def __init__(self, groups: Groups, schedule: Schedule) -> None:
        self._groups, self._schedule = groups, schedule

    def take(self, rows: Iterator[FastRow]) -> int:
        """Apply the plainest of heartbeats up to one of another kind, which is consumed too; return their number.

        Nearly all events are these, so the loop touches arrays and locals only. They are known members' of the current
        generation, answered 0 by the coordinator, whose clock runs, and nothing is due before them.
        """
        heartbeat_table, clock = self._groups.heartbeat_table, self._groups.clock
        coordinator, due_ms = clock.coordinator, self._groups.agenda.due_ms
        broker = clock.brokers.get(coordinator or "")
        if broker is None or clock.waiting:
            next(rows)
            return 0
        slots, last, interval, generations = (
            heartbeat_table.slots,
            heartbeat_table.last_ms,
            heartbeat_table.interval_ms,
            heartbeat_table.generation,
        )
        names = clock.listeners.names
        proof_due_ms = clock.proofs[-1][0] + PROOF_STEP_MS if clock.proofs else 0
        line_ms, gap_ms, done = broker.line_ms, self._groups.settings.thresholds.progress_gap_ms, 0
        for order_ms, group, member_id, generation, error, applied_ms, arrival_ms, name in rows:
            if error != 0 or order_ms >= due_ms or order_ms - line_ms > gap_ms:
                break
            if name != coordinator and names.get(name) != coordinator:
                break
            slot = slots.get(group, _NO_SLOTS).get(member_id)
            if slot is None or generations[slot] != generation:
                break
            if order_ms > line_ms:
                line_ms = order_ms
            interval_ms = applied_ms - last[slot]
            if interval_ms > 0:  # one that trails a later one changes nothing
                interval[slot] = interval_ms if interval_ms < MAX_INTERVAL_MS else MAX_INTERVAL_MS  # noqa: FURB136 # a call
                last[slot] = applied_ms
            if order_ms >= proof_due_ms:
                self._schedule.prove(order_ms, arrival_ms)
                proof_due_ms, due_ms = order_ms + PROOF_STEP_MS, self._groups.agenda.due_ms
            done += 1
        if done:
            broker.line_ms = line_ms
            clock.last_answer_ms = max(clock.last_answer_ms, line_ms)
            self._groups.outputs.count("heartbeats", done)
        return done
