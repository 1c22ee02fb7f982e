"""Groups judged many at a time by columns: what is said of them is what the core says."""

import uuid
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.decode.topic_ids import text_of
from coordinator_model.lag import columns, topic_sums
from coordinator_model.rules.group_lag import judge_group
from coordinator_model.thresholds import DEFAULT_THRESHOLDS, Thresholds
from streaming.run.lag import plain_groups
from streaming.run.lag.commit_table import CommitTable
from streaming.run.lag.group_views import note_owners, seen
from streaming.run.lag.partition_facts import Partitions
from streaming.run.lag.plain_groups import Question, plain_answers
from streaming.run.lag.rounds import NO_ROUND, History, Place, Round
from tests.streaming.run.lag_story import T0, block, member, report

GROUPS, TOPICS, PARTITIONS = ("pay", "mail", "scan"), ("orders", "a.topic"), range(3)
PLACES = [(topic, partition) for topic in TOPICS for partition in PARTITIONS]
NOW_MS = T0 + 100_000


class World:
    """Groups, their commits, and the round that they are judged at."""

    def __init__(self, reports, batches, rounds, *, is_first=False):
        self.table, self.history, known = CommitTable(), History(), NO_ROUND
        for batch, of in batches:
            if of is not None:
                known = rounds[of % len(rounds)]
            self.table.apply([batch], lambda *places, now=known: now.ends_at(self.table.topics, *places))
        for told in rounds[:-1] if is_first else rounds:  # a round asked before the first batch is no part of it
            self.history.add(told)
        self.at = rounds[-1]
        self.groups = [seen(told, told.view) for told in reports]
        note_owners(self.table, [((), group) for group in self.groups])

    def questions(self, thresholds, history):
        return [Question(group.facts, thresholds, history, 7) for group in self.groups]

    def answers(self, thresholds=DEFAULT_THRESHOLDS, history=()):
        """Return the answer of columns and that of the core, for each group."""
        found = Partitions(self.table, self.at, self.history, self.groups)
        questions = self.questions(thresholds, history)
        told = list(plain_answers(found, questions))
        return [
            (None if plain is None else _worked_out(plain), self._core(question, found.of(n)))
            for n, (plain, question) in enumerate(zip(told, questions, strict=True))
        ]

    def _core(self, question, partitions):
        facts, thresholds, history, commits = question
        return judge_group(facts, partitions, self.at.at_ms, thresholds, history, commits=commits)


def _worked_out(answer):
    shown, report = answer
    return shown, replace(report, pending=None if report.pending is None else list(report.pending))


def a_round(at_ms, ends, starts, ids, asked_ms=None, stable=None):
    places, first = {}, 0
    for name in ends:
        places[name] = Place(text_of(uuid.UUID(bytes=ids[name])) if ids.get(name) else None, first, len(ends[name]))
        first += len(ends[name])
    columns = [np.array([n for name in ends for n in of[name]], np.int64) for of in (ends, starts)]
    asked = np.full(first, at_ms if asked_ms is None else asked_ms)
    return Round(at_ms, at_ms, places, *columns, asked, np.zeros(first, np.int64), stable or {})


class Dice:
    """Makes worlds: most values are as they mostly are, and some, in some worlds, are not."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.wild = self.random.choice((0.0, 0.0, 0.02, 0.2))
        self.ids = {topic: self.random.choice((b"", bytes(15) + b"\1")) for topic in TOPICS}

    def of(self, usual, *unusual):
        return self.random.choice(unusual if self.random.random() < self.wild else usual)

    def reports(self):
        return [self.report(name) for name in GROUPS]

    def report(self, name):
        kind = self.random.choice(("classic", "classic", "consumer", "simple", "streams"))
        held = {place: self.random.randrange(3) for place in PLACES}
        members = []
        for number in range(self.random.randrange(4)):
            topic = self.random.choice(TOPICS)
            told = member(
                self.of((f"m{number}",), "m0"),
                topic=topic,
                partitions=[at for at in PARTITIONS if held[topic, at] == number],
                liveness=self.random.choice(("alive", "alive", "unknown", "violated")),
                instance_id=self.random.choice((None, "static")),
                generation=self.of((3,), None, 4),
            )
            members.append(told)
        state = self.random.choice(("Stable", "Stable", "Stable", "Empty", "PreparingRebalance"))
        since_ms = self.of((T0, NOW_MS - 5_000), NOW_MS - 60_000)
        at_ms = self.of((T0,), 0)
        kind = self.of((kind,), "share")
        return report(name, *members, type=kind, state=state, at_ms=at_ms, stable_since_ms=since_ms)

    def batches(self):
        """Return batches of commits, each with the number of the last round before it, None: there was none."""
        made, number, at = [], 0, self.random.choice((None, 0))
        least = self.random.choice((30, 20))
        if self.random.random() < 0.3:  # all is read
            least = 45
        base = {
            (group, *place): least + (self.random.randrange(10) if least < 45 else 0)
            for group in GROUPS
            for place in PLACES
        }
        first_ms = self.random.choice((T0 - 3_600_000, T0 + 40_000, T0 + 90_000))
        for turn in range(self.random.choice((1, 2, 5, 12))):
            rows = []
            for place in base if not turn else self.random.sample([*base], 8):
                number += 1
                base[place] = self.of((base[place], base[place] + 1), base[place] - 3)
                at_ms = min(NOW_MS - 1, first_ms + turn * 4_000) + self.of((0,), 3_000, 500)
                offset = self.of((base[place],), None, -1, NO_OFFSET + 1, 2**53, 2**62, 60)
                topic_id = self.of((self.ids[place[1]], b""), bytes(15) + b"\2")
                rows.append((*place, offset, number, at_ms, 1, topic_id))
            texts = {0: "text"} if self.random.random() < 0.3 else {}
            made.append((block(*rows, metadata=texts), at))
            at = self.of((at,), turn)
        return made

    def rounds(self):
        count = self.random.choice((0, 0, 1, 3))
        earlier = sorted(self.random.randrange(NOW_MS - 400_000, NOW_MS) for _ in range(count))
        return [self.round(at_ms) for at_ms in (*earlier, NOW_MS)]

    def round(self, at_ms):
        least, most = self.random.choice(((45, 45), (45, 60), (45, 60), (25, 60)))
        ends = {
            t: [self.of((self.random.randint(least, most),), 0, NO_OFFSET, 2**62) for _ in PARTITIONS] for t in TOPICS
        }
        starts = {t: [self.of((0,), 40, NO_OFFSET) for _ in PARTITIONS] for t in TOPICS}
        ids = {t: self.of((self.ids[t],), bytes(15) + b"\2", b"") for t in TOPICS}
        stable = {place: 45 for place in PLACES if self.random.random() < self.wild}
        return a_round(at_ms, ends, starts, ids, self.of((at_ms,), at_ms - 40_000), stable)

    def thresholds(self):
        return Thresholds(
            stall_intervals=self.random.randint(1, 4),
            stall_margin_ms=self.random.choice((1_000, 15_000, 50_000)),
            lag_growing_ms=self.random.choice((1_000, 300_000)),
        )

    def history(self):
        count = self.random.randrange(4)
        return sorted(
            (self.random.randrange(NOW_MS - 400_000, NOW_MS + 1), self.random.randrange(300)) for _ in range(count)
        )


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_the_columns_say_what_the_core_says(seed):
    dice = Dice(seed)
    world = World(dice.reports(), dice.batches(), dice.rounds(), is_first=dice.random.random() < 0.3)
    for plain, core in world.answers(dice.thresholds(), dice.history()):
        assert plain is None or plain == core


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 2))
def test_of_a_large_group_they_list_the_same_rows_and_sums(seed, rows, sums):
    """As if a group with more than `rows` partitions, of the six here, were large."""
    dice = Dice(seed)
    world = World(dice.reports(), dice.batches(), dice.rounds(), is_first=dice.random.random() < 0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MAX_ROWS", rows)
        patch.setattr(plain_groups, "MAX_ROWS", rows)
        patch.setattr(topic_sums, "MAX_SUMS", sums)
        for plain, core in world.answers(dice.thresholds(), dice.history()):
            assert plain is None or plain == core


def test_a_large_group_is_plain(monkeypatch):
    monkeypatch.setattr(columns, "MAX_ROWS", 1)
    monkeypatch.setattr(plain_groups, "MAX_ROWS", 1)
    [(plain, core)] = _first_round(40, NOW_AND_THEN_MS, "alive", "classic")
    assert plain == core
    assert plain[0]["columns"]["left_out"] == 1


AGO_MS, NOW_AND_THEN_MS = NOW_MS - 3_600_000, NOW_MS - 5_000


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    ("committed", "at_ms", "liveness", "kind"),
    [
        (50, NOW_AND_THEN_MS, "alive", "classic"),
        (50, AGO_MS, "alive", "classic"),
        (40, NOW_AND_THEN_MS, "alive", "consumer"),
        (40, AGO_MS, "unknown", "classic"),
        (40, AGO_MS, "violated", "streams"),
        (40, NOW_AND_THEN_MS, None, "simple"),
        (40, AGO_MS, None, "classic"),
    ],
)
def test_a_group_of_a_first_round_is_plain(committed, at_ms, liveness, kind, is_first):
    [(plain, core)] = _first_round(committed, at_ms, liveness, kind, is_first=is_first)
    assert plain == core


@pytest.mark.parametrize(
    ("committed", "at_ms", "liveness", "kind"),
    [(40, AGO_MS, "alive", "classic"), (40, AGO_MS, None, "simple"), (60, AGO_MS, "alive", "classic")],
)
def test_what_may_be_wrong_is_left_to_the_core(committed, at_ms, liveness, kind):
    [(plain, _)] = _first_round(committed, at_ms, liveness, kind)
    assert plain is None


def _first_round(committed, at_ms, liveness, kind, *, is_first=False):
    """Judge a group of two partitions, which commits once before there is any end offset; both end at 50."""
    rows = [("pay", "orders", number, committed, number, at_ms) for number in range(2)]
    members = [] if liveness is None else [member("m1", partitions=(0, 1), liveness=liveness)]
    asked = a_round(NOW_MS, {"orders": [50, 50]}, {"orders": [0, 0]}, {})
    told = report("pay", *members, type=kind, stable_since_ms=at_ms - 60_000)
    return World([told], [(block(*rows), None)], [asked], is_first=is_first).answers()
