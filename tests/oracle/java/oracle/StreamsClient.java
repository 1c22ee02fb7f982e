package oracle;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Subtopology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.TaskIds;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Topology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse;

/** An instance of Kafka Streams with its own protocol (KIP-1071): a subtopology for each topic, tasks for partitions. */
final class StreamsClient extends MemberByHeartbeat {
    private final Holdings<String> tasks = new Holdings<>();

    StreamsClient(World world, Plan.Client plan, int run) {
        super(world, plan, run, newMemberId(world, plan, run));
    }

    @Override
    void subscribe(List<String> topics) {
    }

    @Override
    int leaveEpoch() {
        return -1;
    }

    @Override
    void loseAssignment() {
        tasks.lose();
    }

    @Override
    boolean reconcile() {
        return tasks.reconcile();
    }

    @Override
    void send(int epoch) {
        boolean all = epoch == 0 || resendsAll();
        StreamsGroupHeartbeatRequestData data = new StreamsGroupHeartbeatRequestData()
            .setGroupId(plan.group()).setMemberId(memberId()).setMemberEpoch(epoch).setEndpointInformationEpoch(-1);
        if (all && epoch >= 0) data.setRebalanceTimeoutMs(plan.rebalanceMs()).setProcessId(plan.name());
        if (epoch == 0) data.setTopology(topology()).setClientTags(List.of());
        boolean told = tasks.takeUntold();
        if (epoch >= 0 && (all || told))
            data.setActiveTasks(asRequested(epoch == 0 ? Map.of() : tasks.owned())).setStandbyTasks(List.of())
                .setWarmupTasks(List.of());
        this.<StreamsGroupHeartbeatResponse>send(
            new StreamsGroupHeartbeatRequest.Builder(data).build((short) 0), REQUEST_TIMEOUT_MS,
            answer -> answered(epoch, answer.data()), this::unanswered);
    }

    private Topology topology() {
        List<Subtopology> subtopologies = new ArrayList<>();
        for (String topic : plan.topics())
            subtopologies.add(new Subtopology().setSubtopologyId("of-" + topic).setSourceTopics(List.of(topic)));
        return new Topology().setEpoch(plan.version()).setSubtopologies(subtopologies);
    }

    private void answered(int epochAsked, StreamsGroupHeartbeatResponseData data) {
        Errors error = Errors.forCode(data.errorCode());
        boolean goesOn = heard(epochAsked, error, data.memberEpoch(), data.memberId(), data.heartbeatIntervalMs());
        if (!goesOn || data.activeTasks() == null) return;
        Map<String, Set<Integer>> wanted = new TreeMap<>();
        data.activeTasks().forEach(each -> wanted.put(each.subtopologyId(), new TreeSet<>(each.partitions())));
        tasks.aimAt(wanted);
    }

    private static List<TaskIds> asRequested(Map<String, Set<Integer>> tasks) {
        List<TaskIds> all = new ArrayList<>();
        tasks.forEach((id, numbers) ->
            all.add(new TaskIds().setSubtopologyId(id).setPartitions(List.copyOf(numbers))));
        return all;
    }
}
