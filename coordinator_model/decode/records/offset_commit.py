"""Committed offsets: record types 0 and 1.

Type 0 is the oldest form and is no longer written; 4.1 gave it its own schemas (`LegacyOffsetCommit*`, same bytes).
Values of type 1 are written in version 1 if the commit has a retention time, otherwise in version 2 (before 2.1), 3
(2.1 to 4.0) or 4 (since 4.1). During a rolling upgrade the metadata version decides, so a partition may have several.
"""

from coordinator_model.decode.records.schema import NEVER, NO_UUID, Field, Primitive, RecordSchema, struct

_KEY = struct(
    Field("group", Primitive.STRING),
    Field("topic", Primitive.STRING),
    Field("partition", Primitive.INT32),
)

SCHEMAS = (
    RecordSchema(
        0,
        "LegacyOffsetCommit",
        key=_KEY,
        value=struct(
            Field("offset", Primitive.INT64),
            Field("metadata", Primitive.STRING),
            Field("commitTimestamp", Primitive.INT64),
        ),
        flexible_since=NEVER,
    ),
    RecordSchema(
        1,
        "OffsetCommit",
        key=_KEY,
        value=struct(
            Field("offset", Primitive.INT64),
            Field("leaderEpoch", Primitive.INT32, since=3),  # 2.1, KIP-320
            Field("metadata", Primitive.STRING),
            Field("commitTimestamp", Primitive.INT64),
            Field("expireTimestamp", Primitive.INT64, since=1, until=1),  # 2.1 dropped it, KIP-211
            Field("topicId", Primitive.UUID, since=4, tag=0, default=NO_UUID),  # written since 4.1
        ),
        latest_version=4,
        flexible_since=4,  # readable since 3.5, KIP-915
    ),
)
