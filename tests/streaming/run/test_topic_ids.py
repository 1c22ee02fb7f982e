"""Which topics of a checkpoint begin again."""

import json

import pytest

from streaming.run.spark_offsets import topics_read
from streaming.run.topic_ids import TopicIds, cut_short


def test_a_topic_with_another_id_was_recreated(tmp_path):
    known_ids = TopicIds(tmp_path / "checkpoint" / "topics.json")
    assert known_ids.others({"a": "1", "b": "1"}) == set()
    known_ids.keep({"a": "1", "b": "1"})
    assert known_ids.others({"a": "1", "b": "2", "new": "1"}) == {"b"}


def test_the_id_of_a_topic_that_is_away_is_remembered(tmp_path):
    known_ids = TopicIds(tmp_path / "topics.json")
    known_ids.keep({"a": "1", "b": "1"})
    known_ids.keep({"a": "1"})
    assert known_ids.others({"a": "1", "b": "2"}) == {"b"}


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", '"x"'])
def test_a_file_that_cannot_be_read_knows_no_topic(tmp_path, text):
    file = tmp_path / "topics.json"
    file.write_text(text)
    assert TopicIds(file).others({"a": "1"}) == set()


def progress(**offsets):
    return {"sources": [{"endOffset": json.dumps(offsets)}, {"endOffset": 7}, {"endOffset": None}]}


# where a query has read -> where the topics end -> which were cut short
ENDS = {
    "further on": ({"0": 5, "1": 5}, {"0": 9, "1": 5}, set()),
    "one partition before": ({"0": 5, "1": 5}, {"0": 9, "1": 4}, {"t"}),
    "empty now": ({"0": 5}, {"0": 0}, {"t"}),
    "not to be asked": ({"0": 5}, {}, set()),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_topic_that_ends_before_where_it_was_read_was_cut_short(case):
    read, ends, short = ENDS[case]
    assert cut_short(progress(t=read), {"t": ends} if ends else {}) == short


def test_the_topics_that_a_batch_has_read_are_those_of_its_end_offsets():
    assert topics_read(progress(t={"0": 5}, u={"0": 1})).keys() == {"t", "u"}
