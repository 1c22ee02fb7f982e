"""A case: the rows of a capture, each with what replaces it; made from a seed, run, judged, shrunk, written and read.

There are three kinds. *strangers*: the capture is unchanged, and rows that anybody may send are mixed in; all reports
about the capture's groups stay the same. *victims*: the contents of some groups' rows are changed, and groups of other
shards stay as they were. *chaos*: topics, brokers, instants, offsets and order change, too. In every kind: no
exception, no slow batch, no state that grows beyond what came.
"""

import base64
import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from coordinator_model.decode.parse import OFFSETS, REPORTS, TELEMETRY, SourceRow
from tests.fuzz import lines, records, strangers, values
from tests.fuzz.corpus import Corpus, corpus, group_of, names
from tests.fuzz.pipeline import Outcome, Pipeline, Plan

STATE_BYTES = 200_000
"""How many bytes a case's state may have beyond its capture's state and four times the bytes that came."""
STATE_BYTES_A_BYTE = 4
KEPT_BASELINES = 200
_baselines: dict[tuple[tuple[SourceRow, ...], Plan], Outcome] = {}


class Change(NamedTuple):
    """A row of the capture (None: there was none), and the rows in its place."""

    before: SourceRow | None
    after: tuple[SourceRow, ...]

    @property
    def changed(self) -> bool:
        """Whether the row was changed."""
        return self.after != ((self.before,) if self.before is not None else ())


@dataclass(frozen=True)
class Case:
    """What to send, in which batches, and the groups whose reports must be the same as without the changes."""

    changes: tuple[Change, ...]
    plan: Plan
    untouched: frozenset[str] = frozenset()
    renumbered: bool = False
    """Whether inserted rows have a place in their topic, and those after them are shifted."""

    @property
    def before(self) -> list[SourceRow]:
        """The rows as they were."""
        return [change.before for change in self.changes if change.before is not None]

    @property
    def after(self) -> list[SourceRow]:
        """The rows to send."""
        return _numbered(self.changes) if self.renumbered else [row for change in self.changes for row in change.after]


def make(seed: int) -> Case:
    """Make the case of a seed."""
    chance = Random(seed)
    base = corpus(chance.choice(names()))
    batch_ms, shuffle = chance.choice([1_000, 5_000, 5_000, 60_000]), chance.choice([None, 1])
    plan = Plan(batch_ms, moves=chance.random() < 0.3, shuffle=shuffle, partitions=base.partitions)
    return (KINDS[seed % len(KINDS)] if base.in_order else _chaos)(base, plan, chance)


def _strangers(base: Corpus, plan: Plan, chance: Random) -> Case:
    put = strangers.lines(base, chance, chance.choice([1, 5, 50, 300]))
    for _ in range(chance.choice([0, 1, 4])):
        put += strangers.own_group(base, chance)
    after: dict[SourceRow, list[SourceRow]] = {}
    for neighbour, row in put:
        after.setdefault(neighbour, []).append(row)
    changes = [Change(row, (row, *after.get(row, ()))) for row in base.rows]
    return Case(tuple(changes), plan, frozenset(base.known), renumbered=True)


def _numbered(changes: Iterable[Change]) -> list[SourceRow]:
    """Give inserted rows the offsets that follow from their places; gaps of the capture stay where they were."""
    put: Counter[tuple[str, int]] = Counter()
    next_offset: dict[tuple[str, int], int] = {}
    made = []
    for _, (row, *strange) in changes:
        place = row.topic, row.partition
        made.append(row._replace(offset=row.offset + put[place]))
        next_offset[place] = made[-1].offset + 1
        for other in strange:
            place = other.topic, other.partition
            made.append(other._replace(offset=next_offset.setdefault(place, 0)))
            next_offset[place] += 1
            put[place] += 1
    return made


def _victims(base: Corpus, plan: Plan, chance: Random) -> Case:
    victims = set(chance.sample(base.known, chance.randrange(1, len(base.known) + 1)))
    share = chance.choice([0.02, 0.2, 0.9])
    changes = [
        Change(row, (_content(row, chance),) if group in victims and chance.random() < share else (row,))
        for row, group in zip(base.rows, base.groups, strict=True)
    ]
    touched = {base.shard(group) for group in victims}
    for change in changes:  # a row may now be about a group of any name
        touched |= {base.shard(group) for row in change.after if change.changed and (group := group_of(row))}
    return Case(tuple(changes), plan, frozenset(group for group in base.known if base.shard(group) not in touched))


def _content(row: SourceRow, chance: Random) -> SourceRow:
    """Change the contents of a row, but neither its time nor its place."""
    if row.source == OFFSETS:
        key, value = records.mutated(row.key, row.value, chance)
        return row._replace(key=key, value=value)
    return row._replace(value=lines.mutated(row.value or b"", chance))


def _chaos(base: Corpus, plan: Plan, chance: Random) -> Case:
    share = chance.choice([0.01, 0.1, 0.6])
    ways: list[Callable[[SourceRow, Random], tuple[SourceRow, ...]]] = chance.sample(
        _WAYS, chance.choice([1, 2, len(_WAYS)])
    )
    changes = [
        Change(row, chance.choice(ways)(row, chance) if chance.random() < share else (row,)) for row in base.rows
    ]
    changes += [Change(None, (row,)) for _, row in strangers.lines(base, chance, chance.choice([0, 20]))]
    if chance.random() < 0.3:
        changes = _restarted(changes, chance)
    if chance.random() < 0.3:
        changes = _disordered(changes, chance)
    return Case(tuple(changes), plan)


def _lost(_row: SourceRow, _chance: Random) -> tuple[SourceRow, ...]:
    return ()


def _repeated(row: SourceRow, chance: Random) -> tuple[SourceRow, ...]:
    return (row, *[row._replace(offset=row.offset + chance.choice([0, 0, 1, 10**6]))] * chance.choice([1, 2, 50]))


def _misdated(row: SourceRow, chance: Random) -> tuple[SourceRow, ...]:
    minute_ms = 60_000
    by_ms = chance.choice([1, -1, 900, 50 * minute_ms, -50 * minute_ms, 1_440 * minute_ms, 10**11, -(10**11)])
    at_ms = chance.choice([row.timestamp_ms + by_ms] * 6 + [0, -1, 2**53 - 1, 2**53, 2**62])
    return (row._replace(timestamp_ms=at_ms),)


def _renamed_broker(row: SourceRow, chance: Random) -> tuple[SourceRow, ...]:
    if row.source == OFFSETS:
        return (row,)
    return (row._replace(key=chance.choice([None, b"", b"broker-2", b"\xff", values.name(chance).encode()])),)


def _elsewhere(row: SourceRow, chance: Random) -> tuple[SourceRow, ...]:
    """Move the same bytes to another topic or partition."""
    partition = chance.choice([row.partition, 0, 7, 49, 50, 2**31 - 1])
    topics = {OFFSETS: "__consumer_offsets", TELEMETRY: "group-telemetry", REPORTS: strangers.CLIENT_TOPIC}
    source = chance.choice(list(topics))
    return (row._replace(source=source, topic=topics[source], partition=partition),)


def _changed_content(row: SourceRow, chance: Random) -> tuple[SourceRow, ...]:
    return (_content(row, chance),)


_WAYS = [_lost, _repeated, _misdated, _renamed_broker, _elsewhere, _changed_content, _changed_content]


def _restarted(changes: Sequence[Change], chance: Random) -> list[Change]:
    """Let offsets start again in the middle, as if the topics had been created again."""
    at, begin = chance.randrange(len(changes)), chance.choice([0, 10**9])
    source = chance.choice([OFFSETS, TELEMETRY])
    made = list(changes[:at])
    for change in changes[at:]:
        rows = [row._replace(offset=begin + n) if row.source == source else row for n, row in enumerate(change.after)]
        begin += len(rows)
        made.append(Change(change.before, tuple(rows)))
    return made


def _disordered(changes: Sequence[Change], chance: Random) -> list[Change]:
    """Move some rows to other places in the order, within some distance."""
    made, far = list(changes), chance.choice([3, 100, 5_000])
    for _ in range(chance.choice([5, 500])):
        at = chance.randrange(len(made))
        made.insert(max(0, min(len(made), at + chance.randrange(-far, far))), made.pop(at))
    return made


KINDS = (_strangers, _victims, _chaos)

# ---------------------------------------------------------------------------------------------- judging


def failures(case: Case, pipeline: Pipeline, *, serve: bool = True) -> list[str]:
    """Run a case and return what is wrong; nothing if all is well."""
    before, plan = case.before, case.plan
    outcome = pipeline.run(case.after, plan, serve=serve)
    found = list(dict.fromkeys(outcome.failures))
    baseline = _baseline(pipeline, tuple(before), plan)
    came = sum(len(row.key or b"") + len(row.value or b"") for c in case.changes if c.changed for row in c.after)
    if outcome.state_bytes > baseline.state_bytes + STATE_BYTES + STATE_BYTES_A_BYTE * came:
        found.append(f"state: {outcome.state_bytes} bytes, {baseline.state_bytes} without the changes, {came} came")
    told, same = _about(case.untouched, outcome), _about(case.untouched, baseline)
    if told != same:
        found.append(f"others: {sorted(map(str, (told - same) + (same - told)))[:4]}")
    return found


def _about(groups: Iterable[str], outcome: Outcome) -> Counter[tuple[Any, ...]]:
    chosen = frozenset(groups)
    told = {key: n for key, n in outcome.incidents.items() if key[0] in chosen and key[1] not in strangers.HIDDEN}
    return Counter(told)


def _baseline(pipeline: Pipeline, rows: tuple[SourceRow, ...], plan: Plan) -> Outcome:
    """Return the outcome without the changes. The newest are cached, because many cases begin with the same rows."""
    if (rows, plan) not in _baselines:
        if len(_baselines) >= KEPT_BASELINES:
            del _baselines[next(iter(_baselines))]
        _baselines[rows, plan] = pipeline.run(rows, plan, serve=False)
    return _baselines[rows, plan]


def kind_of(failure: str) -> str:
    """Return the kind of a failure, without what depends on the rows."""
    what, rest = failure.split(":", 1)
    return what if what in ("others", "state") else f"{what}:{rest.split(':')[0]}"


# ---------------------------------------------------------------------------------------------- shrinking, files


def shrunk(case: Case, still_fails: Callable[[Case], bool], budget_s: float = 60.0) -> Case:
    """Undo changes, then leave out rows, in ever smaller portions, as long as the case still fails and time is left."""
    end_s = time.monotonic() + budget_s
    for smaller in (_undone, _left_out):
        portion = max(1, len(case.changes) // 2)
        while portion and time.monotonic() < end_s:
            start = 0
            while start < len(case.changes) and time.monotonic() < end_s:
                tried = smaller(case, start, start + portion)
                if tried is not None and still_fails(tried):
                    start -= portion if len(tried.changes) < len(case.changes) else 0
                    case = tried
                start += portion
            portion //= 2
    return case


def _undone(case: Case, start: int, end: int) -> Case | None:
    part = case.changes[start:end]
    if not any(change.changed for change in part):
        return None
    was = [Change(change.before, (change.before,) if change.before else ()) for change in part]
    return replace(case, changes=(*case.changes[:start], *was, *case.changes[end:]))


def _left_out(case: Case, start: int, end: int) -> Case | None:
    rest = (*case.changes[:start], *case.changes[end:])
    return replace(case, changes=rest) if len(rest) < len(case.changes) else None


def write(case: Case, path: Path) -> None:
    """Write a case as JSON Lines: the plan, then each row and what became of it."""
    head = {"plan": astuple(case.plan), "untouched": sorted(case.untouched)}
    head |= {"renumbered": case.renumbered}
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.write(json.dumps(head) + "\n")
        for before, after in case.changes:
            out.write(json.dumps([before and _packed(before), [_packed(row) for row in after]]) + "\n")


def read(path: Path) -> Case:
    """Read what `write` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as lines_:
        head, *rest = map(json.loads, lines_)
    changes = (Change(_unpacked(b) if b else None, tuple(map(_unpacked, after))) for b, after in rest)
    return Case(tuple(changes), Plan(*head["plan"]), frozenset(head["untouched"]), head["renumbered"])


def _packed(row: SourceRow) -> list[Any]:
    blobs = [None if blob is None else base64.b64encode(blob).decode() for blob in row[5:]]
    return [*row[:5], *blobs]


def _unpacked(values_: list[Any]) -> SourceRow:
    blobs = [None if text is None else base64.b64decode(text) for text in values_[5:]]
    return SourceRow(*values_[:5], *blobs)
