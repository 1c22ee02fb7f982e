package oracle;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData.TopicPartitions;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ConsumerGroupHeartbeatRequest;
import org.apache.kafka.common.requests.ConsumerGroupHeartbeatResponse;

/**
 * A consumer of KIP-848. Its network thread sends heartbeats. What is taken from it, it gives up in its next poll. If
 * it does not poll in time it leaves, and it comes back under the same id when it polls again.
 */
final class ModernConsumer extends MemberByHeartbeat {
    private final Holdings<Uuid> partitions = new Holdings<>();
    private List<String> topics;
    private boolean subscriptionChanged = false;

    ModernConsumer(World world, Plan.Client plan, int run) {
        super(world, plan, run, plan.version() == 0 ? "" : newMemberId(world, plan, run));
        topics = plan.topics();
    }

    @Override
    void subscribe(List<String> newTopics) {
        topics = newTopics;
        subscriptionChanged = true;
        heartbeatSoon();
    }

    @Override
    int leaveEpoch() {
        return plan.instance() == null ? -1 : -2;
    }

    @Override
    void loseAssignment() {
        partitions.lose();
    }

    @Override
    boolean reconcile() {
        return partitions.reconcile();
    }

    @Override
    void send(int epoch) {
        boolean all = epoch == 0 || resendsAll();
        ConsumerGroupHeartbeatRequestData data = new ConsumerGroupHeartbeatRequestData()
            .setGroupId(plan.group()).setMemberId(memberId()).setMemberEpoch(epoch);
        if (all || epoch < 0) data.setInstanceId(plan.instance());
        if (all) data.setRebalanceTimeoutMs(plan.rebalanceMs());
        if (plan.regex() != null && all) data.setSubscribedTopicRegex(plan.regex());
        if (plan.regex() == null && (all || subscriptionChanged)) data.setSubscribedTopicNames(topics);
        if (all && epoch >= 0) data.setServerAssignor(plan.assignors().get(0));
        boolean told = partitions.takeUntold();
        if (epoch == 0) data.setTopicPartitions(List.of());
        else if (epoch > 0 && (all || told)) data.setTopicPartitions(asRequested(partitions.owned()));
        subscriptionChanged = false;
        this.<ConsumerGroupHeartbeatResponse>send(
            new ConsumerGroupHeartbeatRequest.Builder(data, true).build((short) plan.version()), REQUEST_TIMEOUT_MS,
            answer -> answered(epoch, answer.data()), this::unanswered);
    }

    private void answered(int epochAsked, ConsumerGroupHeartbeatResponseData data) {
        Errors error = Errors.forCode(data.errorCode());
        boolean goesOn = heard(epochAsked, error, data.memberEpoch(), data.memberId(), data.heartbeatIntervalMs());
        if (!goesOn || data.assignment() == null) return;
        Map<Uuid, Set<Integer>> wanted = new TreeMap<>();
        data.assignment().topicPartitions().forEach(each -> wanted.put(each.topicId(), new TreeSet<>(each.partitions())));
        partitions.aimAt(wanted);
    }

    private static List<TopicPartitions> asRequested(Map<Uuid, Set<Integer>> partitions) {
        List<TopicPartitions> all = new ArrayList<>();
        partitions.forEach((topic, numbers) ->
            all.add(new TopicPartitions().setTopicId(topic).setPartitions(List.copyOf(numbers))));
        return all;
    }
}
