"""What a shard remembers from batch to batch besides its groups, and how that is written to the state and read back."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields
from itertools import starmap
from typing import Any, NamedTuple, get_args

from coordinator_model.brokers.accepted_heartbeats import AcceptedHeartbeats
from coordinator_model.brokers.blindness import BlindWindow
from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.former_coordinators import FormerCoordinators
from coordinator_model.brokers.leadership import Claim, Leadership
from coordinator_model.brokers.line_clocks import Doubt
from coordinator_model.brokers.line_dates import Apart, LineDates, Logged, Told
from coordinator_model.brokers.listeners import Listeners
from coordinator_model.brokers.one_clock import BrokerClock
from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.events import Event
from coordinator_model.heartbeat_block import NO_HEARTBEATS, HeartbeatBlock
from coordinator_model.rules.broker_watch import AffectedMember, BrokerWatch, SteppedClock, UnloggedLeader
from coordinator_model.rules.coordinator_unavailable import RefusalSpell
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.refused_unknown import RefusedClient
from coordinator_model.shard.commit_times import NOTHING_READ, CommitRow, ReadTo
from coordinator_model.shard.rebase import rebased
from coordinator_model.shard.snapshot import dump_commit_rows, dump_memory, load_commit_rows, load_memory
from coordinator_model.states import Cause

_WATCH_FIELDS = [f.name for f in fields(BrokerWatch) if f.name != "affected_members"]
_COORDINATORS_TIME = (
    "clock", "listeners", "former", "restarts", "blind", "watch", "reported", "deleted", "viewed_ms",
)  # fmt: skip
"""The values whose instants are by the coordinator's clock."""
_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Event)}


class ReportedFinding(NamedTuple):
    """A finding of a group's last report, in brief: a group is reported again if one of these fields changes.

    The fields are plain strings, so that a finding read from the state equals one that was made now.
    """

    rule: str
    who: str
    """The member's id, or the subject of a finding that is not about a member."""
    severity: str
    evidence: str
    cause: str
    deadline_ms: int | None

    @classmethod
    def of(cls, finding: Finding) -> "ReportedFinding":
        """Return a finding in brief."""
        who = finding.member_id or finding.subject
        return cls(finding.rule, who, finding.severity, finding.evidence, finding.cause, finding.deadline_ms)

    @property
    def key(self) -> tuple[str, str]:
        """What distinguishes a group's findings."""
        return self.rule, self.who


@dataclass(slots=True)
class ShardMemory:
    """Clocks, events that are held back, findings that were reported, offsets that were read."""

    clock: CoordinatorTracker = field(default_factory=CoordinatorTracker)
    watch: BrokerWatch = field(default_factory=BrokerWatch)
    held: list[Event] = field(default_factory=list)
    held_heartbeats: HeartbeatBlock = NO_HEARTBEATS
    held_commits: list[CommitRow] = field(default_factory=list)
    commits_read: ReadTo = NOTHING_READ
    reported: dict[str, list[ReportedFinding]] = field(default_factory=dict)
    """By group: the findings of its last report that have not ended. Groups without findings are left out."""
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic and partition: the greatest offset read. An event at this offset or below is a duplicate."""
    newest_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic and partition: the newest instant read.

    A newer event is not a duplicate, even if its offset was read before: the topic was recreated.
    """
    read_to: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic and partition of telemetry: the last offset read, whichever shard its line belongs to."""
    deleted: dict[str, int] = field(default_factory=dict)
    """By deleted group: when it was deleted. Late events of the group are recognized by this."""
    viewed_ms: int = 0
    behind_ms: int | None = None
    """How far the newest line was behind the wall clock when it came. This is large while the job catches up."""
    doubts: dict[str, Doubt] = field(default_factory=dict)
    """By broker: its lines in doubt (``line_clocks``)."""
    dates: LineDates = field(default_factory=LineDates)

    def as_dict(self) -> dict[str, Any]:
        """Return the memory as values for JSON, except for the bytes in records that are held back."""
        clock = self.clock
        return {
            "brokers": {name: list(astuple(broker)) for name, broker in clock.brokers.items()},
            "clock": [
                clock.coordinator,
                clock.coordinator_since_ms,
                clock.last_answer_ms,
                clock.covered_since_ms,
                clock.accepted.kept,
                clock.floor_ms,
                clock.record_ms,
            ],
            "leadership": list(astuple(clock.leadership)),
            "listeners": list(astuple(clock.listeners)),
            "restarts": [list(astuple(reset)) for reset in clock.timer_resets],
            "former": list(astuple(clock.former)),
            "blind": [[w.broker, w.from_ms, w.until_ms, w.why] for w in clock.blind],
            "watch": _from_watch(self.watch),
            "held": _from_events(self.held),
            "held_heartbeats": self.held_heartbeats.as_list(),
            "reported": self.reported,
            "held_commits": dump_commit_rows(self.held_commits),
            "commits_read": list(self.commits_read),
            "offsets": _from_places(self.offsets),
            "newest_ms": _from_places(self.newest_ms),
            "read_to": _from_places(self.read_to),
            "deleted": self.deleted,
            "viewed_ms": self.viewed_ms,
            "lag_ms": self.behind_ms,
            "doubts": {broker: _from_doubt(doubt) for broker, doubt in self.doubts.items()},
            "dates": _from_dates(self.dates),
        }

    def rebase(self, delta_ms: int, until_ms: int) -> None:
        """Move all instants by the coordinator's clock along with it.

        The brokers' own clocks, events that are held back and what metadata says are by other clocks.
        """
        brokers, clocks, values = self.clock.brokers, self.watch.clocks, self.as_dict()
        values |= {name: rebased(values[name], delta_ms, until_ms) for name in _COORDINATORS_TIME}
        moved = ShardMemory.from_dict(load_memory(dump_memory(values)))
        moved.clock.brokers, moved.watch.clocks = brokers, clocks
        self.clock, self.watch, self.viewed_ms = moved.clock, moved.watch, moved.viewed_ms
        self.reported, self.deleted = moved.reported, moved.deleted

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ShardMemory":
        """Read what ``as_dict`` returned."""
        coordinator, since_ms, last_answer_ms, covered_since_ms, accepted, floor_ms, record_ms = values["clock"]
        named_ms, node, leader, others, unlogged_ms, claims, *rest = values["leadership"]
        names, pair, *turns = values["listeners"]
        clock = CoordinatorTracker(
            brokers={name: BrokerClock(*fields) for name, fields in values["brokers"].items()},
            coordinator=coordinator,
            coordinator_since_ms=since_ms,
            last_answer_ms=last_answer_ms,
            covered_since_ms=covered_since_ms,
            timer_resets=[TimerReset(low, high, Cause(cause), *rest) for low, high, cause, *rest in values["restarts"]],
            accepted=AcceptedHeartbeats([(line_ms, arrival_ms) for line_ms, arrival_ms in accepted]),
            floor_ms=floor_ms,
            leadership=Leadership(named_ms, node, leader, tuple(others), unlogged_ms, _claims(claims), *rest),
            former=_to_former(*values["former"]),
            blind=[BlindWindow(*window) for window in values["blind"]],
            listeners=Listeners(names, (pair[0], pair[1]), *turns),
            record_ms=record_ms,
        )
        return cls(
            clock=clock,
            watch=_to_watch(values["watch"]),
            held=_to_events(values["held"]),
            held_heartbeats=HeartbeatBlock.of_list(values["held_heartbeats"]),
            reported={group: [ReportedFinding(*row) for row in rows] for group, rows in values["reported"].items()},
            held_commits=load_commit_rows(values["held_commits"]),
            commits_read=ReadTo(*values["commits_read"]),
            offsets=_to_places(values["offsets"]),
            newest_ms=_to_places(values["newest_ms"]),
            read_to=_to_places(values["read_to"]),
            deleted=values["deleted"],
            viewed_ms=values["viewed_ms"],
            behind_ms=values["lag_ms"],
            doubts={broker: _to_doubt(doubt) for broker, doubt in values["doubts"].items()},
            dates=_to_dates(*values.get("dates", ([], [], {}, {}, None))),
        )


def _to_former(answered_ms: Any, superseded_ms: Any, announced: Any = ()) -> FormerCoordinators:
    told = {group: (broker, generation) for group, (broker, generation) in dict(announced).items()}
    return FormerCoordinators(answered_ms, superseded_ms, told)


def _from_watch(watch: BrokerWatch) -> list[Any]:
    return [list(watch.affected_members.values()), *(getattr(watch, name) for name in _WATCH_FIELDS)]


def _to_watch(values: list[Any]) -> BrokerWatch:
    affected, stalled_ms, refusals, refused, clocks, silent_broker, unlogged, overdue_ms = values
    return BrokerWatch(
        affected_members={(member.group, member.subject): member for member in starmap(AffectedMember, affected)},
        stalled_ms=stalled_ms,
        refusals=refusals and RefusalSpell(*refusals),
        refused_joins={key: RefusedClient(*client) for key, client in refused.items()},
        clocks={broker: SteppedClock(*step) for broker, step in clocks.items()},
        silent_broker=silent_broker,
        unlogged=unlogged and UnloggedLeader(*unlogged),
        overdue_ms=overdue_ms,
    )


def _from_places(values: dict[tuple[str, int], int]) -> list[list[Any]]:
    return [[*place, value] for place, value in values.items()]


def _to_places(values: list[list[Any]]) -> dict[tuple[str, int], int]:
    return {(topic, partition): value for topic, partition, value in values}


def _from_events(events: Sequence[Event]) -> list[Any]:
    return [[type(event).__name__, list(event)] for event in events]


def _to_events(values: list[Any]) -> list[Any]:
    return [_EVENTS[name](*_tuples(fields)) for name, fields in values]


def _from_doubt(doubt: Doubt) -> list[Any]:
    head = [doubt.ahead, doubt.first_ms, doubt.last_ms, _from_events(doubt.lines)]
    return [*head, doubt.probe, doubt.in_a_row, doubt.peers, doubt.peer_ms, doubt.heard]


def _to_doubt(values: list[Any]) -> Doubt:
    ahead, first_ms, last_ms, lines, probe, in_a_row, peers, peer_ms, heard = values
    last = None if probe is None else (probe[0], probe[1])
    told = None if heard is None else (heard[0], heard[1], heard[2])
    return Doubt(ahead, first_ms, last_ms, _to_events(lines), last, in_a_row, tuple(peers), peer_ms, told)


def _from_dates(dates: LineDates) -> list[Any]:
    logged = [[*line.told, *line[1:]] for line in dates.logged.values()]
    return [
        [[*told, at_ms] for told, at_ms in dates.recorded.items()],
        logged,
        dates.apart,
        dates.misdated,
        dates.doubted,
    ]


def _to_dates(
    recorded: list[Any], logged: list[Any], apart: dict[str, Any], misdated: dict[str, int], doubted: Any
) -> LineDates:
    lines = {Told(*row[:4]): Logged(Told(*row[:4]), *row[4:]) for row in logged}
    times = {Told(*told): at_ms for *told, at_ms in recorded}
    pairs = {broker: Apart(*pair) for broker, pair in apart.items()}
    return LineDates(times, lines, pairs, misdated, doubted and (doubted[0], doubted[1]))


def _claims(values: dict[str, list[Any]]) -> dict[str, Claim]:
    return {broker: Claim(*claim) for broker, claim in values.items()}


def _tuples(values: list[Any]) -> list[Any]:
    """Make tuples again of the lists that JSON made of the tuples in a held ``JoinAnswered``."""
    return [tuple(map(tuple, v)) if isinstance(v, list) and v and isinstance(v[0], list) else v for v in values]
