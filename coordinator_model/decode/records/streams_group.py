"""KIP-1071 streams groups: record types 17 and 19 to 23, since 4.1. Type 18 was reserved and never released."""

from coordinator_model.decode.records.consumer_group import (
    ASSIGNMENT_EPOCHS,
    GROUP_KEY,
    MEMBER_KEY,
    TARGET_ASSIGNMENT_METADATA,
)
from coordinator_model.decode.records.schema import Array, Field, Primitive, RecordSchema, struct

_KEY_VALUES = Array(struct(Field("key", Primitive.STRING), Field("value", Primitive.STRING)))


def _tasks(*more: Field) -> Array:
    return Array(struct(Field("subtopologyId", Primitive.STRING), Field("partitions", Array(Primitive.INT32)), *more))


_OWNED = _tasks(ASSIGNMENT_EPOCHS)  # epochs: 4.2

_TOPIC_INFO = struct(
    Field("name", Primitive.STRING),
    Field("partitions", Primitive.INT32),
    Field("replicationFactor", Primitive.INT16),
    Field("topicConfigs", _KEY_VALUES),
)

_COPARTITION_GROUP = struct(  # indexes into the topic lists of the subtopology
    Field("sourceTopics", Array(Primitive.INT16)),
    Field("sourceTopicRegex", Array(Primitive.INT16)),
    Field("repartitionSourceTopics", Array(Primitive.INT16)),
)

_SUBTOPOLOGY = struct(
    Field("subtopologyId", Primitive.STRING),
    Field("sourceTopics", Array(Primitive.STRING)),
    Field("sourceTopicRegex", Array(Primitive.STRING)),
    Field("stateChangelogTopics", Array(_TOPIC_INFO)),
    Field("repartitionSinkTopics", Array(Primitive.STRING)),
    Field("repartitionSourceTopics", Array(_TOPIC_INFO)),
    Field("copartitionGroups", Array(_COPARTITION_GROUP)),
)

_USER_ENDPOINT = struct(Field("host", Primitive.STRING), Field("port", Primitive.UINT16))

SCHEMAS = (
    RecordSchema(
        17,
        "StreamsGroupMetadata",
        key=GROUP_KEY,
        value=struct(
            Field("epoch", Primitive.INT32),
            Field("metadataHash", Primitive.INT64),
            Field("validatedTopologyEpoch", Primitive.INT32, tag=0, default=-1),  # 4.2
            Field("lastAssignmentConfigs", _KEY_VALUES, tag=1, nullable=True, default=[]),  # 4.2
        ),
    ),
    RecordSchema(
        19,
        "StreamsGroupMemberMetadata",
        key=MEMBER_KEY,
        value=struct(
            Field("instanceId", Primitive.STRING, nullable=True),
            Field("rackId", Primitive.STRING, nullable=True),
            Field("clientId", Primitive.STRING),
            Field("clientHost", Primitive.STRING),
            Field("rebalanceTimeoutMs", Primitive.INT32),
            Field("topologyEpoch", Primitive.INT32),
            Field("processId", Primitive.STRING),
            Field("userEndpoint", _USER_ENDPOINT, nullable=True),
            Field("clientTags", _KEY_VALUES),
        ),
    ),
    RecordSchema(20, "StreamsGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA),
    RecordSchema(
        21,
        "StreamsGroupTargetAssignmentMember",
        key=MEMBER_KEY,
        value=struct(
            Field("activeTasks", _tasks()),
            Field("standbyTasks", _tasks()),
            Field("warmupTasks", _tasks()),
        ),
    ),
    RecordSchema(
        22,
        "StreamsGroupCurrentMemberAssignment",
        key=MEMBER_KEY,
        value=struct(
            Field("memberEpoch", Primitive.INT32),
            Field("previousMemberEpoch", Primitive.INT32),
            Field("state", Primitive.INT8),  # 1 STABLE, 2 UNREVOKED_TASKS, 3 UNRELEASED_TASKS; type 8 has other numbers
            Field("activeTasks", _OWNED),
            Field("standbyTasks", _OWNED),
            Field("warmupTasks", _OWNED),
            Field("activeTasksPendingRevocation", _OWNED),
            Field("standbyTasksPendingRevocation", _OWNED),
            Field("warmupTasksPendingRevocation", _OWNED),
        ),
    ),
    RecordSchema(
        23,
        "StreamsGroupTopology",
        key=GROUP_KEY,
        value=struct(Field("epoch", Primitive.INT32), Field("subtopologies", Array(_SUBTOPOLOGY))),
    ),
)
