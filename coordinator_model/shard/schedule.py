"""When verdicts are made: each at its own instant, before any later event is applied.

The lines of the coordinator move the time. If only records are seen, the records move it (``record``), and open
findings end as time passes without a record (``pass_time``). The ``agenda`` knows what is due, and when.
"""

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.leadership import STALE_MS
from coordinator_model.events import FAR_MS
from coordinator_model.shard.group_judgement import GroupJudgement
from coordinator_model.shard.groups import Groups

FIRST_LOOK_MS = 1_000
"""How long after a coordinator's first answer its groups are looked at. No session ends sooner."""
AGE_EVERY_MS = 5_000
"""How often to check whether open findings have ended, while no record comes."""


class Schedule:
    """When one shard's groups are judged."""

    def __init__(self, groups: Groups, judgement: GroupJudgement) -> None:
        self._groups, self._judgement = groups, judgement
        self._present_ms = FAR_MS
        """The present of a batch: this machine's clock, or the newest record of a capture."""
        self._has_records = False
        """Whether the batch has a record. It is used only if records tell the time."""
        self._aged_ms = 0
        """When open findings were last checked without a record."""

    @property
    def _clock(self) -> CoordinatorTracker:
        return self._groups.clock  # not stored here: a rebase replaces the object

    def begin(self, present_ms: int) -> None:
        """Begin a batch: set its present, and note that no record of it has been seen yet."""
        self._present_ms, self._has_records = present_ms, False

    def record(self, record_ms: int) -> None:
        """Apply the instant of a record: it may close a timer reset, and if only records are seen, it moves the time.

        In the second case everything that was due before the instant is judged. What is due at the instant itself
        waits, because all records of one write have the same instant.
        """
        if self._clock.wrote(record_ms):
            self.look_again(record_ms)
        if self._clock.by_records:
            self._has_records = True
            self._clock.recorded(record_ms, self._present_ms)
            if record_ms >= self._groups.settings.live_from_ms:
                self.judge_due(self._clock.record_ms - 1)

    def judge_due(self, until_ms: int) -> None:
        """Make every verdict that is due up to an instant, each at its own instant, earliest first.

        Each round looks once at every group that is due, and leaves nothing due at that instant. So the loop ends.
        """
        while self._groups.agenda.due_ms <= until_ms and not self._clock.hole_is_open:
            due_ms = self._groups.agenda.next_ms()
            if due_ms > until_ms:
                return
            for group in self._groups.agenda.groups_due(due_ms):
                with self._judgement.isolated(group, due_ms):
                    self._judgement.look(group, due_ms)

    def prove(self, line_ms: int, arrival_ms: int) -> None:
        """Note an accepted heartbeat. A verdict that waited for it is due a grace after the heartbeat's line."""
        if self._clock.accepted.note(line_ms, arrival_ms) and self._groups.agenda.unproved:
            for group in self._groups.agenda.proved_by(arrival_ms):
                self._groups.agenda.look_at(group, line_ms + self._groups.thresholds_of(group).grace_ms)

    def look_again(self, at_ms: int) -> None:
        """Schedule a look at what is due now, and at every group a little later, unless a timer reset is still open."""
        self._groups.agenda.due_ms = min(self._groups.agenda.due_ms, at_ms)
        if self._clock.timer_resets and not self._clock.waiting:
            for group in self._groups.heartbeat_table.slots:
                self._groups.agenda.look_at(group, at_ms + FIRST_LOOK_MS)

    def pass_time(self, *, final: bool) -> None:
        """Judge by the newest records, and let open findings end as time passes without a record.

        Once the present is a grace after the newest write, all of the write has been read, and its group is judged.
        While the job catches up, the present is ahead of what was read, so no finding ends.
        """
        settings = self._groups.settings
        record_ms, present_ms = self._clock.record_ms, self._present_ms
        behind_ms = present_ms - record_ms
        if record_ms < settings.live_from_ms:
            return
        if final or behind_ms >= settings.thresholds.grace_ms:
            self.judge_due(record_ms)
        caught_up = final or behind_ms < STALE_MS or not self._has_records
        if caught_up and self._aged_ms + AGE_EVERY_MS <= present_ms < FAR_MS:
            self._aged_ms = present_ms
            self._judgement.age(present_ms)
