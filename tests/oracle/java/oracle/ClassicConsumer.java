package oracle;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.HeartbeatRequestData;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.LeaveGroupRequestData.MemberIdentity;
import org.apache.kafka.common.message.OffsetCommitRequestData;
import org.apache.kafka.common.message.OffsetCommitRequestData.OffsetCommitRequestPartition;
import org.apache.kafka.common.message.OffsetCommitRequestData.OffsetCommitRequestTopic;
import org.apache.kafka.common.message.SyncGroupRequestData;
import org.apache.kafka.common.message.SyncGroupResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.HeartbeatRequest;
import org.apache.kafka.common.requests.HeartbeatResponse;
import org.apache.kafka.common.requests.JoinGroupRequest;
import org.apache.kafka.common.requests.JoinGroupResponse;
import org.apache.kafka.common.requests.LeaveGroupRequest;
import org.apache.kafka.common.requests.LeaveGroupResponse;
import org.apache.kafka.common.requests.OffsetCommitRequest;
import org.apache.kafka.common.requests.OffsetCommitResponse;
import org.apache.kafka.common.requests.SyncGroupRequest;
import org.apache.kafka.common.requests.SyncGroupResponse;

/**
 * A consumer of the classic protocol, like those of Java, librdkafka and kafka-python: it joins and commits in its poll
 * loop. A thread of its own sends heartbeats and checks that polls come in time.
 */
final class ClassicConsumer extends Client {
    private static final String POLL_TIMEOUT = "consumer poll timeout has expired.";
    private static final long RETRY_US = 100 * MS;
    private static final long FATAL_US = 5_000 * MS;

    private enum Phase { UNJOINED, JOINING, SYNCING, STABLE }

    private final ClassicVersions versions;
    private final List<Assignor> assignors;
    private List<String> topics;
    private Assignor assignor;
    private Phase phase = Phase.UNJOINED;
    private String memberId = "";
    private int generation = -1;
    private Set<TopicPartition> owned = new HashSet<>();
    private boolean rejoins = true;
    private String reason = "";
    private boolean stuck = false;
    private Runnable waitsForPoll;
    private long polledUs;
    private long committedUs;
    private long heardUs;
    private long beat = 0;
    private boolean beats = false;
    private boolean leads = false;

    ClassicConsumer(World world, Plan.Client plan, int run) {
        super(world, plan, run);
        versions = ClassicVersions.of(plan.version());
        assignors = plan.assignors().stream().map(Assignor::new).toList();
        assignor = assignors.get(0);
        topics = plan.topics();
    }

    private boolean isStatic() {
        return plan.instance() != null && versions.knowsInstances();
    }

    @Override
    void start() {
        findCoordinator();
        application.after(0, this::poll);
    }

    // ------------------------------------------------------------------ the application's thread

    private void poll() {
        if (stuck) return;
        polledUs = now();
        if (waitsForPoll != null) {
            Runnable action = waitsForPoll;
            waitsForPoll = null;
            action.run();
        }
        if (rejoins && phase != Phase.JOINING && phase != Phase.SYNCING) join();
        if (phase == Phase.STABLE && plan.commitMs() > 0 && now() - committedUs >= plan.commitMs() * MS) commit();
        application.after(dice.between(plan.pollMs()) * MS, this::poll);
    }

    @Override
    void stall(boolean stuckNow) {
        boolean goesOn = stuck && !stuckNow;
        stuck = stuckNow;
        if (goesOn) application.after(0, this::poll);
    }

    @Override
    void subscribe(List<String> newTopics) {
        topics = newTopics;
        rejoin("subscription has changed");
    }

    @Override
    void topicsChanged() {
        if (leads) rejoin("cached metadata has changed");
    }

    /** What Java does only in poll(), and the others in a thread of their own. */
    private void inPoll(Runnable action) {
        if (stuck && plan.library().equals("java")) waitsForPoll = action;
        else action.run();
    }

    private void rejoin(String why) {
        rejoins = true;
        reason = why;
    }

    @Override
    void close() {
        boolean leaves = !isStatic() && !plan.library().equals("streams") && !memberId.isEmpty();
        if (leaves) leave("the consumer is being closed");
        application.after(dice.between(1, 50) * MS, this::kill);
    }

    // ------------------------------------------------------------------ join and sync

    private void join() {
        if (!knowsCoordinator()) {
            findCoordinator();
            return;
        }
        phase = Phase.JOINING;
        rejoins = false;
        beats = false;
        if (!assignor.isCooperative()) owned = new HashSet<>();
        JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestProtocolCollection();
        for (Assignor each : assignors)
            protocols.add(new JoinGroupRequestProtocol().setName(each.name())
                .setMetadata(each.subscribe(topics, owned, generation)));
        JoinGroupRequestData data = new JoinGroupRequestData().setGroupId(plan.group()).setMemberId(memberId)
            .setProtocolType("consumer").setProtocols(protocols)
            .setSessionTimeoutMs(plan.sessionMs()).setRebalanceTimeoutMs(plan.rebalanceMs());
        if (isStatic()) data.setGroupInstanceId(plan.instance());
        if (versions.givesReasons()) data.setReason(reason);
        long timeoutMs = Math.max(REQUEST_TIMEOUT_MS, plan.rebalanceMs() + 5_000L);
        this.<JoinGroupResponse>send(new JoinGroupRequest.Builder(data).build(versions.join()), timeoutMs,
            answer -> joined(answer.data()), () -> joinAgain(true));
    }

    private void joined(JoinGroupResponseData answer) {
        Errors error = Errors.forCode(answer.errorCode());
        switch (error) {
            case NONE -> {
                memberId = answer.memberId();
                generation = answer.generationId();
                phase = Phase.SYNCING;
                startHeartbeats();
                inPoll(() -> sync(answer));
            }
            case MEMBER_ID_REQUIRED -> {
                memberId = answer.memberId();
                reason = "need to re-join with the given member-id: " + memberId;
                joinAgain(false);
            }
            case UNKNOWN_MEMBER_ID -> {
                memberId = "";
                joinAgain(false);
            }
            default -> failed(error);
        }
    }

    private void joinAgain(boolean afterLoss) {
        phase = Phase.UNJOINED;
        rejoins = true;
        if (afterLoss) findCoordinator();
    }

    /** An error that Java's coordinator handles in the same way wherever it comes. */
    private void failed(Errors error) {
        phase = Phase.UNJOINED;
        switch (error) {
            case NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE -> {
                forgetCoordinator();
                rejoin("rebalance failed due to " + error);
            }
            case UNKNOWN_MEMBER_ID -> reset("");
            case ILLEGAL_GENERATION -> reset(memberId);
            case REBALANCE_IN_PROGRESS, COORDINATOR_LOAD_IN_PROGRESS -> rejoin("group is already rebalancing");
            default -> {
                beats = false;
                rejoins = false;
                application.after(FATAL_US, () -> reset(""));
            }
        }
    }

    private void reset(String keptMemberId) {
        memberId = keptMemberId;
        generation = -1;
        owned = new HashSet<>();
        phase = Phase.UNJOINED;
        beats = false;
        rejoin("need to re-join");
    }

    private void sync(JoinGroupResponseData joined) {
        if (phase != Phase.SYNCING || joined.generationId() != generation) return;
        for (Assignor each : assignors)
            if (each.name().equals(joined.protocolName())) assignor = each;
        SyncGroupRequestData data = new SyncGroupRequestData().setGroupId(plan.group()).setMemberId(memberId)
            .setGenerationId(generation).setProtocolType("consumer").setProtocolName(assignor.name());
        if (isStatic()) data.setGroupInstanceId(plan.instance());
        leads = joined.leader().equals(memberId);
        if (leads && !joined.skipAssignment())
            data.setAssignments(assignor.assign(world.topics().cluster(), joined.members()));
        this.<SyncGroupResponse>send(new SyncGroupRequest.Builder(data).build(versions.sync()), REQUEST_TIMEOUT_MS,
            answer -> synced(answer.data()), () -> joinAgain(true));
    }

    private void synced(SyncGroupResponseData answer) {
        Errors error = Errors.forCode(answer.errorCode());
        if (phase != Phase.SYNCING) return;
        if (error != Errors.NONE) {
            failed(error);
            return;
        }
        phase = Phase.STABLE;
        Set<TopicPartition> assigned =
            assignor.accept(answer.assignment(), plan.group(), generation, memberId, plan.instance());
        boolean revokes = !assigned.containsAll(owned);
        owned = assigned;
        if (revokes && assignor.isCooperative()) rejoin("need to revoke partitions and re-join");
    }

    // ------------------------------------------------------------------ heartbeats

    private void startHeartbeats() {
        beats = true;
        heardUs = now();
        long thisBeat = ++beat;
        background.after(plan.heartbeatMs() * MS, () -> heartbeat(thisBeat));
    }

    private void heartbeat(long thisBeat) {
        if (!beats || thisBeat != beat) return;
        if (now() - heardUs > plan.sessionMs() * MS && knowsCoordinator()) {
            heardUs = now();
            forgetCoordinator();
        }
        if (now() - polledUs > plan.rebalanceMs() * MS && mindsPolls()) {
            overslept();
            return;
        }
        if (!knowsCoordinator()) {
            findCoordinator();
            background.after(RETRY_US, () -> heartbeat(thisBeat));
            return;
        }
        HeartbeatRequestData data = new HeartbeatRequestData()
            .setGroupId(plan.group()).setMemberId(memberId).setGenerationId(generation);
        if (isStatic()) data.setGroupInstanceId(plan.instance());
        int generationAsked = generation;
        this.<HeartbeatResponse>send(new HeartbeatRequest.Builder(data).build(versions.heartbeat()),
            REQUEST_TIMEOUT_MS, answer -> heard(answer.error(), generationAsked), () -> { });
        background.after(nextBeatUs(), () -> heartbeat(thisBeat));
    }

    private boolean mindsPolls() {
        return versions.join() > 0;
    }

    private long nextBeatUs() {
        long left = polledUs + plan.rebalanceMs() * MS - now() + 1;
        return left > 0 ? Math.min(plan.heartbeatMs() * MS, left) : plan.heartbeatMs() * MS;
    }

    private void heard(Errors error, int generationAsked) {
        if (generationAsked != generation || !beats) return;
        heardUs = now();
        switch (error) {
            case NONE -> { }
            case REBALANCE_IN_PROGRESS -> {
                if (phase == Phase.STABLE) rejoin("group is already rebalancing");
            }
            case NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE -> forgetCoordinator();
            default -> failed(error);
        }
    }

    private void overslept() {
        beats = false;
        world.recorder().client(plan.name(), "poll-exceeded", world.realMs(), plan.group(), memberId);
        if (!isStatic()) leave(plan.library().equals("java") ? POLL_TIMEOUT : null);
        reset("");
    }

    private void leave(String why) {
        MemberIdentity member = new MemberIdentity().setMemberId(memberId);
        if (versions.givesReasons()) member.setReason(why);
        LeaveGroupRequest request =
            new LeaveGroupRequest.Builder(plan.group(), List.of(member)).build(versions.leave());
        this.<LeaveGroupResponse>send(request, REQUEST_TIMEOUT_MS, answer -> { }, () -> { });
    }

    // ------------------------------------------------------------------ commits

    private void commit() {
        committedUs = now();
        if (owned.isEmpty()) return;
        OffsetCommitRequestData data = new OffsetCommitRequestData().setGroupId(plan.group()).setMemberId(memberId)
            .setGenerationIdOrMemberEpoch(generation).setTopics(new ArrayList<>());
        if (isStatic()) data.setGroupInstanceId(plan.instance());
        for (TopicPartition tp : owned)
            data.topics().add(new OffsetCommitRequestTopic().setName(tp.topic()).setPartitions(List.of(
                new OffsetCommitRequestPartition().setPartitionIndex(tp.partition()).setCommittedOffset(now()))));
        OffsetCommitRequest request = OffsetCommitRequest.Builder.forTopicNames(data).build((short) 8);
        this.<OffsetCommitResponse>send(request, REQUEST_TIMEOUT_MS, answer -> { }, () -> { });
    }
}
