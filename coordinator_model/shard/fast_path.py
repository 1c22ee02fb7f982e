"""The fast path, for heartbeats that only change two numbers in packed arrays. Nearly all events are of this kind.

If a member has a finding or fewer than two heartbeats, or its group rebalances, the generation of its slot in the
``heartbeat_table`` is -1. Then its next heartbeat takes the slow path, on its group's replica.
"""

from collections.abc import Iterator

from coordinator_model.brokers.accepted_heartbeats import STEP_MS
from coordinator_model.brokers.one_clock import GAP_MS
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
        """Apply heartbeats up to the first that must take the slow path; return how many were applied.

        The one that must take the slow path is consumed from ``rows`` too. A heartbeat is applied here if the
        coordinator answered it 0, the member is known in that generation, no timer reset is open, no verdict is due
        before it, and there is no gap in the coordinator's lines before it. The loop touches only arrays and local
        variables, because nearly all events pass through it.
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
        proof_due_ms = clock.accepted.next_ms
        line_ms, done = broker.line_ms, 0
        for order_ms, group, member_id, generation, error, applied_ms, arrival_ms, name in rows:
            if error != 0 or order_ms >= due_ms or order_ms - line_ms > GAP_MS:
                break
            if name != coordinator and names.get(name) != coordinator:
                break
            slot = slots.get(group, _NO_SLOTS).get(member_id)
            if slot is None or generations[slot] != generation:
                break
            if order_ms > line_ms:
                line_ms = order_ms
            interval_ms = applied_ms - last[slot]
            if interval_ms > 0:  # otherwise a later heartbeat was applied already
                interval[slot] = interval_ms if interval_ms < MAX_INTERVAL_MS else MAX_INTERVAL_MS  # noqa: FURB136 # a call
                last[slot] = applied_ms
            if order_ms >= proof_due_ms:
                self._schedule.prove(order_ms, arrival_ms)
                proof_due_ms, due_ms = order_ms + STEP_MS, self._groups.agenda.due_ms
            done += 1
        if done:
            broker.line_ms = line_ms
            clock.last_answer_ms = max(clock.last_answer_ms, line_ms)
            self._groups.outputs.count("heartbeats", done)
        return done
