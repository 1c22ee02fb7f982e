"""Laws of decoding: it never raises, it reads all of a record and nothing but the record, and its short cuts agree."""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_model.decode.member_protocol import assignment, connect_assignment, connect_worker, subscription
from coordinator_model.decode.records import Outcome, decode, group_of, offset_commit_key, record_type

FIXTURE = Path(__file__).parents[1] / "fixtures/consumer_offsets/kafka-4.3.1.jsonl"
ROWS = [json.loads(line) for line in FIXTURE.read_text(encoding="ascii").splitlines()]
WHOLE = [
    (bytes.fromhex(row["key"]), bytes.fromhex(row["value"])) for row in ROWS if row["expected"]["outcome"] == "decoded"
]

LAW = settings(deadline=None, max_examples=300)

records = st.sampled_from(WHOLE)
versions = st.integers(0, 5).map(lambda version: version.to_bytes(2, "big"))
types = st.integers(0, 24).map(lambda type_: type_.to_bytes(2, "big"))
text = st.binary(max_size=6).map(lambda raw: len(raw).to_bytes(2, "big") + raw)
keys = (
    st.binary(max_size=40)
    | st.builds(bytes.__add__, types, st.lists(text, max_size=3).map(b"".join))
    | st.builds(
        lambda type_, group, topic, tail: type_ + group + topic + tail, types, text, text, st.binary(max_size=4)
    )
)
values = st.binary(max_size=200) | st.builds(bytes.__add__, versions, st.binary(max_size=200))


@LAW
@given(keys | st.none(), values | st.none())
def test_any_bytes_have_an_outcome(key, value):
    record = decode(key, value)
    assert (record.value is not None) == (record.outcome is Outcome.DECODED)
    assert (record.error is None) == (record.outcome in {Outcome.DECODED, Outcome.TOMBSTONE})
    assert (record.key is not None) >= (record.outcome in {Outcome.DECODED, Outcome.TOMBSTONE, Outcome.UNKNOWN_VERSION})


@LAW
@given(records, st.data())
def test_a_value_cut_anywhere_is_malformed(record, data):
    key, value = record
    cut = data.draw(st.integers(0, len(value) - 1))
    assert decode(key, value[:cut]).outcome is Outcome.MALFORMED


@LAW
@given(records, st.data())
def test_a_key_cut_anywhere_is_malformed(record, data):
    key, value = record
    cut = data.draw(st.integers(0, len(key) - 1))
    assert decode(key[:cut], value).outcome is Outcome.MALFORMED
    assert group_of(key[:cut]) is None


@LAW
@given(records, st.binary(min_size=1, max_size=9))
def test_bytes_left_over_are_malformed(record, tail):
    key, value = record
    assert decode(key + tail, value).outcome is Outcome.MALFORMED
    assert decode(key, value + tail).outcome is Outcome.MALFORMED


@LAW
@given(keys)
def test_the_short_cuts_agree_with_decode(key):
    fields = decode(key, None).key
    assert record_type(key) == decode(key, None).type
    assert group_of(key) == (None if fields is None else fields.get("group", fields.get("groupId")))
    commit = (
        None if fields is None or "topic" not in fields else (fields["group"], fields["topic"], fields["partition"])
    )
    assert offset_commit_key(key) == commit


@LAW
@given(st.binary(max_size=60) | st.builds(bytes.__add__, versions, st.binary(max_size=60)))
def test_members_blobs_never_raise(blob):
    for read in (subscription, assignment, connect_worker, connect_assignment):
        read(blob)
