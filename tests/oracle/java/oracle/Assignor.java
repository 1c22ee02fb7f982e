package oracle;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.RebalanceProtocol;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.JoinGroupResponseData.JoinGroupResponseMember;
import org.apache.kafka.common.message.SyncGroupRequestData.SyncGroupRequestAssignment;
import org.apache.kafka.common.utils.Utils;

/** One of Kafka's own assignors, used by a member of the classic protocol. */
final class Assignor {
    private static final Map<String, Short> SUBSCRIPTION_VERSIONS = Map.of("eager", (short) 1, "cooperative", (short) 3);

    private final ConsumerPartitionAssignor assignor;

    Assignor(String name) {
        assignor = switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    String name() {
        return assignor.name();
    }

    boolean isCooperative() {
        return assignor.supportedProtocols().contains(RebalanceProtocol.COOPERATIVE);
    }

    byte[] subscribe(List<String> topics, Collection<TopicPartition> owned, int generation) {
        ByteBuffer userData = assignor.subscriptionUserData(new HashSet<>(topics));
        short version = SUBSCRIPTION_VERSIONS.get(isCooperative() ? "cooperative" : "eager");
        Subscription subscription =
            new Subscription(topics, userData, List.copyOf(owned), generation, Optional.empty());
        return Utils.toArray(ConsumerProtocol.serializeSubscription(subscription, version));
    }

    List<SyncGroupRequestAssignment> assign(Cluster cluster, List<JoinGroupResponseMember> members) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JoinGroupResponseMember member : members) {
            Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(member.metadata()));
            subscription.setGroupInstanceId(Optional.ofNullable(member.groupInstanceId()));
            subscriptions.put(member.memberId(), subscription);
        }
        List<SyncGroupRequestAssignment> assignments = new ArrayList<>();
        assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment().forEach((member, assignment) ->
            assignments.add(new SyncGroupRequestAssignment().setMemberId(member)
                .setAssignment(Utils.toArray(ConsumerProtocol.serializeAssignment(assignment)))));
        return assignments;
    }

    @SuppressWarnings("removal")
    Set<TopicPartition> accept(byte[] bytes, String group, int generation, String memberId, String instance) {
        if (bytes.length == 0) return new HashSet<>();
        Assignment assignment = ConsumerProtocol.deserializeAssignment(ByteBuffer.wrap(bytes));
        assignor.onAssignment(
            assignment, new ConsumerGroupMetadata(group, generation, memberId, Optional.ofNullable(instance)));
        return new HashSet<>(assignment.partitions());
    }
}
