"""KIP-848 consumer groups: record types 3 to 8 and 16.

The values have been stable since 3.8 and have version 0 only; fields that were added later are tagged. Early-access
clusters (3.5, 3.7) wrote other formats, also as version 0. Such records are malformed here or decode to wrong values:
nothing in the bytes distinguishes them.
"""

from coordinator_model.decode.records.schema import Array, Field, Primitive, RecordSchema, Struct, struct

GROUP_KEY = struct(Field("groupId", Primitive.STRING))
MEMBER_KEY = struct(Field("groupId", Primitive.STRING), Field("memberId", Primitive.STRING))

TARGET_ASSIGNMENT_METADATA = struct(
    Field("assignmentEpoch", Primitive.INT32),
    Field("assignmentTimestamp", Primitive.INT64, tag=0),  # ms; 4.3
)


def topic_partitions(*more: Field) -> Struct:
    """Partitions of one topic."""
    return struct(Field("topicId", Primitive.UUID), Field("partitions", Array(Primitive.INT32)), *more)


TARGET_ASSIGNMENT_MEMBER = struct(Field("topicPartitions", Array(topic_partitions())))

ASSIGNMENT_EPOCHS = Field("assignmentEpochs", Array(Primitive.INT32), tag=0, nullable=True, default=[])
"""The epoch in which each partition was assigned. In Kafka's schema the default is an unquoted `null`, which Kafka's
generator takes for "empty": an absent tag is an empty list, and null is written explicitly."""

_OWNED = Array(topic_partitions(ASSIGNMENT_EPOCHS))  # epochs: 4.3

_CLASSIC_MEMBER = struct(
    Field("sessionTimeoutMs", Primitive.INT32),
    Field(
        "supportedProtocols",
        Array(struct(Field("name", Primitive.STRING), Field("metadata", Primitive.BYTES))),
    ),
)

_PARTITION_METADATA = struct(
    Field("topicId", Primitive.UUID),
    Field("topicName", Primitive.STRING),
    Field("numPartitions", Primitive.INT32),
    Field(
        "partitionMetadata",
        Array(struct(Field("partition", Primitive.INT32), Field("racks", Array(Primitive.STRING)))),
    ),
)

SCHEMAS = (
    RecordSchema(
        3,
        "ConsumerGroupMetadata",
        key=GROUP_KEY,
        value=struct(
            Field("epoch", Primitive.INT32),
            Field("metadataHash", Primitive.INT64, tag=0),  # 4.1; replaces type 4
        ),
    ),
    RecordSchema(  # since 4.1 only its tombstone is written
        4,
        "ConsumerGroupPartitionMetadata",
        key=GROUP_KEY,
        value=struct(Field("topics", Array(_PARTITION_METADATA))),
    ),
    RecordSchema(
        5,
        "ConsumerGroupMemberMetadata",
        key=MEMBER_KEY,
        value=struct(
            Field("instanceId", Primitive.STRING, nullable=True),
            Field("rackId", Primitive.STRING, nullable=True),
            Field("clientId", Primitive.STRING),
            Field("clientHost", Primitive.STRING),
            Field("subscribedTopicNames", Array(Primitive.STRING)),
            Field("subscribedTopicRegex", Primitive.STRING, nullable=True),
            Field("rebalanceTimeoutMs", Primitive.INT32),
            Field("serverAssignor", Primitive.STRING, nullable=True),
            Field(  # absent, null and empty all mean that it is not a classic member (default: see ASSIGNMENT_EPOCHS)
                "classicMemberMetadata",
                _CLASSIC_MEMBER,
                tag=0,
                nullable=True,
                default={"sessionTimeoutMs": 0, "supportedProtocols": []},
            ),
        ),
    ),
    RecordSchema(6, "ConsumerGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA),
    RecordSchema(7, "ConsumerGroupTargetAssignmentMember", key=MEMBER_KEY, value=TARGET_ASSIGNMENT_MEMBER),
    RecordSchema(
        8,
        "ConsumerGroupCurrentMemberAssignment",
        key=MEMBER_KEY,
        value=struct(
            Field("memberEpoch", Primitive.INT32),
            Field("previousMemberEpoch", Primitive.INT32),
            Field("state", Primitive.INT8),  # 0 STABLE, 1 UNREVOKED_PARTITIONS, 2 UNRELEASED_PARTITIONS
            Field("assignedPartitions", _OWNED),
            Field("partitionsPendingRevocation", _OWNED),
        ),
    ),
    RecordSchema(  # 4.0
        16,
        "ConsumerGroupRegularExpression",
        key=struct(Field("groupId", Primitive.STRING), Field("regularExpression", Primitive.STRING)),
        value=struct(
            Field("topics", Array(Primitive.STRING)),
            Field("version", Primitive.INT64),  # offset of the metadata image
            Field("timestamp", Primitive.INT64),
        ),
    ),
)
