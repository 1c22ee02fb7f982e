"""When verdicts are made: each at its own instant, before what comes later is applied.

The coordinator's own lines move the time; where only records are seen, they do (``record``), and what is open then ends
as the present passes without any (``pass_time``). What is due, and when, lies in the ``agenda``.
"""

from coordinator_model.brokers.broker_clock import CoordinatorTracker
from coordinator_model.brokers.leadership import STALE_MS
from coordinator_model.shard.group_judgement import GroupJudgement
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.heartbeat_table import FAR_MS

FIRST_LOOK_MS = 1_000
"""How long after a coordinator's first answer its groups are looked at: no session ends sooner."""
AGE_EVERY_MS = 5_000
"""How often open findings are looked at that may end though no record comes."""


class Schedule:
    """When one shard's groups are judged."""

    def __init__(self, groups: Groups, judgement: GroupJudgement) -> None:
        self._groups, self._judgement = groups, judgement
        self._present_ms = FAR_MS
        """The present of a batch: as this machine's clock has it, or a capture's newest record."""
        self._has_records = False
        """Whether the batch has any, where records tell the time."""
        self._aged_ms = 0
        """When they were last looked at."""

    @property
    def _clock(self) -> CoordinatorTracker:
        return self._groups.clock  # another one once a clock has stepped

    def begin(self, present_ms: int) -> None:
        """Begin a batch, in the present as it is now."""
        self._present_ms, self._has_records = present_ms, False

    def record(self, record_ms: int) -> None:
        """Let a record close a timer reset, and move the time where only records are seen: what was due comes first.

        What is due at its own instant waits: the records of one write have one instant.
        """
        if self._clock.wrote(record_ms):
            self.look_again(record_ms)
        if self._clock.by_records:
            self._has_records = True
            self._clock.recorded(record_ms, self._present_ms)
            if record_ms >= self._groups.settings.live_from_ms:
                self.fire(self._clock.record_ms - 1)

    def fire(self, until_ms: int) -> None:
        """Make every verdict that is due up to here, each at its own instant, earliest first.

        A round looks once at each group that is due, and leaves nothing due at its instant: so it ends.
        """
        while self._groups.agenda.due_ms <= until_ms and not self._clock.hole_is_open:
            due_ms = self._groups.agenda.next_ms()
            if due_ms > until_ms:
                return
            for group in self._groups.agenda.groups_due(due_ms):
                with self._judgement.alone(group, due_ms):
                    self._judgement.look(group, due_ms)

    def prove(self, line_ms: int, arrival_ms: int) -> None:
        """Note an accepted heartbeat; a verdict that waited for one is due once its line is a grace old."""
        if self._clock.prove(line_ms, arrival_ms) and self._groups.agenda.unproved:
            for group in self._groups.agenda.proved_by(arrival_ms):
                self._groups.agenda.look_at(group, line_ms + self._groups.thresholds_of(group).grace_ms)

    def look_again(self, at_ms: int) -> None:
        """Look at what is due now, and at every group a little later, once, unless its timers are open still."""
        self._groups.agenda.due_ms = min(self._groups.agenda.due_ms, at_ms)
        if self._clock.timer_resets and not self._clock.waiting:
            for group in self._groups.heartbeat_table.slots:
                self._groups.agenda.look_at(group, at_ms + FIRST_LOOK_MS)

    def pass_time(self, *, final: bool) -> None:
        """Make the verdicts of the newest records, and let what is open end as time passes without any.

        A write is read whole, and its group looked at, once the present is later by a grace. While this machine catches
        up its clock is ahead of what it has read, and ends nothing.
        """
        settings = self._groups.settings
        record_ms, present_ms = self._clock.record_ms, self._present_ms
        behind_ms = present_ms - record_ms
        if record_ms < settings.live_from_ms:
            return
        if final or behind_ms >= settings.thresholds.grace_ms:
            self.fire(record_ms)
        caught_up = final or behind_ms < STALE_MS or not self._has_records
        if caught_up and self._aged_ms + AGE_EVERY_MS <= present_ms < FAR_MS:
            self._aged_ms = present_ms
            self._judgement.age(present_ms)
