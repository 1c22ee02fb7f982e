"""KIP-932 share groups: record types 10 to 15.

Type 9 (ShareGroupPartitionMetadata) existed in 3.9 and 4.0 only. Kafka 4.3 no longer knows it, so it is unknown here.
"""

from coordinator_model.decode.records.consumer_group import (
    GROUP_KEY,
    MEMBER_KEY,
    TARGET_ASSIGNMENT_MEMBER,
    TARGET_ASSIGNMENT_METADATA,
    topic_partitions,
)
from coordinator_model.decode.records.schema import Array, Field, Primitive, RecordSchema, struct

_TOPIC = struct(Field("topicId", Primitive.UUID), Field("topicName", Primitive.STRING))
_NAMED_PARTITIONS = struct(*_TOPIC.fields, Field("partitions", Array(Primitive.INT32)))

SCHEMAS = (
    RecordSchema(
        10,
        "ShareGroupMemberMetadata",
        key=MEMBER_KEY,
        value=struct(
            Field("rackId", Primitive.STRING, nullable=True),
            Field("clientId", Primitive.STRING),
            Field("clientHost", Primitive.STRING),
            Field("subscribedTopicNames", Array(Primitive.STRING)),
        ),
    ),
    RecordSchema(
        11,
        "ShareGroupMetadata",
        key=GROUP_KEY,
        value=struct(
            Field("epoch", Primitive.INT32),
            Field("metadataHash", Primitive.INT64),  # 4.1; not tagged, so a record of the 4.0 preview is malformed
        ),
    ),
    RecordSchema(12, "ShareGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA),
    RecordSchema(13, "ShareGroupTargetAssignmentMember", key=MEMBER_KEY, value=TARGET_ASSIGNMENT_MEMBER),
    RecordSchema(
        14,
        "ShareGroupCurrentMemberAssignment",
        key=MEMBER_KEY,
        value=struct(
            Field("memberEpoch", Primitive.INT32),
            Field("previousMemberEpoch", Primitive.INT32),
            Field("state", Primitive.INT8),
            Field("assignedPartitions", Array(topic_partitions())),
        ),
    ),
    RecordSchema(
        15,
        "ShareGroupStatePartitionMetadata",
        key=GROUP_KEY,
        value=struct(
            Field("initializingTopics", Array(_NAMED_PARTITIONS)),
            Field("initializedTopics", Array(_NAMED_PARTITIONS)),
            Field("deletingTopics", Array(_TOPIC)),
        ),
    ),
)
