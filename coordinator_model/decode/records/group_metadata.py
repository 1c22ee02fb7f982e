"""A classic group with all its members: record type 2.

Brokers write version 0 before 0.10.1, 1 before 2.1, 2 before 2.3, and 3 since then. Version 4 can be read since 3.5
(KIP-915), but no broker writes it. The record has no state: a group with members is Stable, one without is Empty.
"""

from coordinator_model.decode.records.schema import Array, Field, Primitive, RecordSchema, struct

_MEMBER = struct(
    Field("memberId", Primitive.STRING),
    Field("groupInstanceId", Primitive.STRING, since=3, nullable=True),  # 2.3, KIP-345
    Field("clientId", Primitive.STRING),
    Field("clientHost", Primitive.STRING),  # with a leading slash, as Java prints addresses
    Field("rebalanceTimeout", Primitive.INT32, since=1),  # ms; 0.10.1, KIP-62
    Field("sessionTimeout", Primitive.INT32),  # ms
    Field("subscription", Primitive.BYTES),
    Field("assignment", Primitive.BYTES),
)

SCHEMAS = (
    RecordSchema(
        2,
        "GroupMetadata",
        key=struct(Field("group", Primitive.STRING)),
        value=struct(
            Field("protocolType", Primitive.STRING),
            Field("generation", Primitive.INT32),
            Field("protocol", Primitive.STRING, nullable=True),
            Field("leader", Primitive.STRING, nullable=True),
            Field("currentStateTimestamp", Primitive.INT64, since=2),  # ms; 2.1, KIP-211
            Field("members", Array(_MEMBER)),
        ),
        latest_version=4,
        flexible_since=4,
    ),
)
