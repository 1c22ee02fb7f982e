"""What is asked of kafka-python about topics, and how its faults are lived with."""

from types import SimpleNamespace

import pytest
from kafka.errors import LeaderNotAvailableError

from streaming.run import topics as module
from streaming.run.topics import Topics


class Admin:
    """An admin client that knows two topics; the second has no id, as with brokers before 2.8."""

    def __init__(self, **_client):
        self.asked, self.is_closed = [], False

    def describe_topics(self, names):
        self.asked.append(names)
        found = [
            {"name": "a", "topic_id": "00000000-0000-0000-0000-000000000007", "partitions": self.partitions(2)},
            {"name": "b", "partitions": self.partitions(1)},
        ]
        return [*found, {"name": "nowhere", "error_code": 3, "partitions": []}]

    @staticmethod
    def partitions(count):
        return [{"partition_index": number} for number in reversed(range(count))]

    def close(self):
        self.is_closed = True


@pytest.fixture
def admins(monkeypatch):
    made = []
    monkeypatch.setattr(module, "KafkaAdminClient", lambda **client: made.append(Admin(**client)) or made[-1])
    return made


def test_only_the_topics_in_question_are_asked_for(admins):
    """Thousands of others are not described every five seconds."""
    with Topics({}) as topics:
        existing = topics.existing(["a", "b", "nowhere"])
    assert existing.assigned == {"a": (0, 1), "b": (0,)}
    assert existing.ids == {"a": "00000000-0000-0000-0000-000000000007"}
    assert admins[0].asked == [["a", "b", "nowhere"]]


def test_who_asks_after_connections_were_closed_opens_new_ones(admins):
    with Topics({}) as topics:
        topics.existing(["a"])
        topics.close()
        topics.existing(["a"])
        assert [admin.is_closed for admin in admins] == [True, False]
    assert admins[1].is_closed


class Consumer(SimpleNamespace):
    """A consumer of topic "a", whose two records are of instants 5 and 9. It raises KeyError as often as it is told."""

    def __init__(self, **faults):
        super().__init__(faults=faults)

    def end_offsets(self, partitions):
        return self._offsets("ends", partitions, 1)

    def beginning_offsets(self, partitions):
        return self._offsets("begins", partitions, 0)

    def _offsets(self, name, partitions, offset):
        self.faults[name] = self.faults.get(name, 0) - 1
        if self.faults[name] >= 0:
            raise KeyError(partitions[0])
        return dict.fromkeys(partitions, offset)

    def assign(self, partitions):
        self.assigned = partitions

    def seek(self, partition, offset):
        assert offset == 0

    def poll(self, **_):
        return {partition: [SimpleNamespace(timestamp=[5, 9][partition.partition])] for partition in self.assigned}

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize("faults", [{}, {"ends": 1}, {"begins": 2}])
def test_the_newest_record_is_found_although_kafka_python_fails_at_first(admins, monkeypatch, faults):
    monkeypatch.setattr(module, "KafkaConsumer", lambda **_: Consumer(**faults))
    monkeypatch.setattr(module, "RETRY_AFTER_S", 0.0)
    with Topics({}) as topics:
        assert topics.newest_ms(["a"]) == 9


def test_a_partition_whose_offset_stays_unknown_is_an_error_of_kafka(admins, monkeypatch):
    monkeypatch.setattr(module, "KafkaConsumer", lambda **_: Consumer(ends=99))
    monkeypatch.setattr(module, "RETRY_AFTER_S", 0.0)
    with Topics({}) as topics, pytest.raises(LeaderNotAvailableError):
        topics.starts("offsets", {"offsets": (0,), "a": (0,)}, 0)
