package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeSet;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.types.SchemaException;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorShardBuilder;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.classic.ClassicGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.share.ShareGroup;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupMember;
import org.apache.kafka.coordinator.group.streams.StreamsGroup;
import org.apache.kafka.coordinator.group.streams.StreamsGroupMember;

/** The groups of a coordinator as its own objects hold them, with the instants at which their sessions end. */
public final class LiveGroups {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private GroupMetadataManager groups;
    private Function<String, OptionalLong> dueMs;

    /** Groups that are made later, by the shard whose builder {@link #watch} returns. */
    LiveGroups() {
    }

    /** {@code dueMs}: by the key of a timer, the instant for which it is set; empty if it is not set. */
    public LiveGroups(GroupMetadataManager groups, Function<String, OptionalLong> dueMs) {
        this.groups = groups;
        this.dueMs = dueMs;
    }

    /** Returns the builder of a shard whose groups are then read here. */
    GroupCoordinatorShard.Builder watch(GroupCoordinatorConfig config, GroupConfigManager groupConfigs, Time time) {
        GroupCoordinatorShard.Builder builder = new GroupCoordinatorShard.Builder(config, groupConfigs) {
            @Override
            public CoordinatorShardBuilder<GroupCoordinatorShard, CoordinatorRecord> withTimer(
                CoordinatorTimer<CoordinatorRecord> own
            ) {
                WatchedTimer timer = new WatchedTimer(own, time);
                dueMs = timer::dueMs;
                return super.withTimer(timer);
            }

            @Override
            public GroupCoordinatorShard build() {
                GroupCoordinatorShard shard = super.build();
                groups = managerOf(shard);
                return shard;
            }
        };
        builder.withAuthorizerPlugin(Optional.empty());
        return builder;
    }

    private static GroupMetadataManager managerOf(GroupCoordinatorShard shard) {
        try {
            Field field = GroupCoordinatorShard.class.getDeclaredField("groupMetadataManager");
            field.setAccessible(true);
            return (GroupMetadataManager) field.get(shard);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Returns every group; none while nothing is loaded. */
    public ArrayNode describe() {
        ArrayNode described = JSON.arrayNode();
        if (groups == null) return described;
        for (String id : new TreeSet<>(groups.groupIds())) {
            Group group = groups.group(id);
            ObjectNode node = described.addObject().put("group", id).put("type", group.type().toString());
            node.put("state", group.stateAsString());
            if (group instanceof ClassicGroup classic) describeClassic(node, classic);
            else if (group instanceof ConsumerGroup consumer) describeConsumer(node, consumer);
            else if (group instanceof ShareGroup share) describeShare(node, share);
            else if (group instanceof StreamsGroup streams) describeStreams(node, streams);
        }
        return described;
    }

    private void describeClassic(ObjectNode node, ClassicGroup group) {
        node.put("generation", group.generationId());
        node.put("protocol_type", group.protocolType().orElse(null));
        node.put("protocol", group.protocolName().orElse(null));
        node.put("leader", group.leaderOrNull());
        node.put("pending", group.numPendingJoinMembers());
        node.put("owing_sync", group.allPendingSyncMembers().size());
        node.put("joining", group.numAwaitingJoinResponse());
        ArrayNode members = node.putArray("members");
        for (ClassicGroupMember member : group.allMembers()) {
            ObjectNode each = describeMember(members, member.memberId(), member.groupInstanceId().orElse(null),
                member.clientId(), member.clientHost());
            each.put("session_timeout_ms", member.sessionTimeoutMs());
            each.put("rebalance_timeout_ms", member.rebalanceTimeoutMs());
            each.put("new", member.isNew()).put("parked", member.isAwaitingJoin() || member.isAwaitingSync());
            setDeadline(each, GroupMetadataManager.classicGroupHeartbeatKey(group.groupId(), member.memberId()));
            if ("consumer".equals(group.protocolType().orElse(null))) describeAssignment(each, member.assignment());
        }
    }

    private static void describeAssignment(ObjectNode member, byte[] assignment) {
        if (assignment.length == 0) return;
        List<String> held = new ArrayList<>();
        try {
            for (TopicPartition tp : ConsumerProtocol.deserializeAssignment(ByteBuffer.wrap(assignment)).partitions())
                held.add(tp.topic() + "-" + tp.partition());
        } catch (SchemaException unreadable) {
            return; // bytes that no consumer would send
        }
        putAll(member, "assignment", held);
    }

    private void describeConsumer(ObjectNode node, ConsumerGroup group) {
        node.put("generation", group.groupEpoch()).put("assignment_epoch", group.assignmentEpoch());
        ArrayNode members = node.putArray("members");
        for (ConsumerGroupMember member : group.members().values()) {
            ObjectNode each = describeMember(
                members, member.memberId(), member.instanceId(), member.clientId(), member.clientHost());
            each.put("epoch", member.memberEpoch()).put("state", member.state().toString());
            each.put("classic", member.useClassicProtocol());
            each.put("rebalance_timeout_ms", member.rebalanceTimeoutMs() < 0 ? null : (Integer) member.rebalanceTimeoutMs());
            setDeadline(each, GroupMetadataManager.groupSessionTimeoutKey(group.groupId(), member.memberId()));
            putAll(each, "assignment", together(member.assignedPartitions(), member.partitionsPendingRevocation()));
        }
    }

    private void describeShare(ObjectNode node, ShareGroup group) {
        node.put("generation", group.groupEpoch()).put("assignment_epoch", group.assignmentEpoch());
        ArrayNode members = node.putArray("members");
        for (ShareGroupMember member : group.members().values()) {
            ObjectNode each =
                describeMember(members, member.memberId(), null, member.clientId(), member.clientHost());
            each.put("epoch", member.memberEpoch());
            setDeadline(each, GroupMetadataManager.groupSessionTimeoutKey(group.groupId(), member.memberId()));
            putAll(each, "assignment", listed(member.assignedPartitions()));
        }
    }

    private void describeStreams(ObjectNode node, StreamsGroup group) {
        node.put("generation", group.groupEpoch()).put("assignment_epoch", group.assignmentEpoch());
        ArrayNode members = node.putArray("members");
        for (StreamsGroupMember member : group.members().values()) {
            ObjectNode each = describeMember(
                members, member.memberId(), member.instanceId().orElse(null), member.clientId(), member.clientHost());
            each.put("epoch", member.memberEpoch()).put("state", String.valueOf(member.state()));
            setDeadline(each, GroupMetadataManager.groupSessionTimeoutKey(group.groupId(), member.memberId()));
        }
    }

    private static ObjectNode describeMember(
        ArrayNode members, String memberId, String instanceId, String clientId, String host
    ) {
        return members.addObject().put("member_id", memberId).put("instance_id", instanceId)
            .put("client_id", clientId).put("client_host", host.substring(host.indexOf('/') + 1));
    }

    private void setDeadline(ObjectNode member, String timerKey) {
        dueMs.apply(timerKey).ifPresent(atMs -> member.put("deadline_ms", atMs));
    }

    private static List<String> together(
        Map<Uuid, Map<Integer, Integer>> owned, Map<Uuid, Map<Integer, Integer>> revoking
    ) {
        List<String> all = new ArrayList<>();
        for (Map<Uuid, Map<Integer, Integer>> part : List.of(owned, revoking))
            part.forEach((topic, partitions) -> partitions.keySet().forEach(p -> all.add(topic + "-" + p)));
        return all;
    }

    private static List<String> listed(Map<Uuid, ? extends Collection<Integer>> partitions) {
        List<String> all = new ArrayList<>();
        partitions.forEach((topic, numbers) -> numbers.forEach(p -> all.add(topic + "-" + p)));
        return all;
    }

    private static void putAll(ObjectNode node, String name, List<String> values) {
        Collections.sort(values);
        ArrayNode array = node.putArray(name);
        values.forEach(array::add);
    }
}
