package oracle;

import java.util.List;
import org.apache.kafka.common.message.ShareGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ShareGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ShareGroupHeartbeatRequest;
import org.apache.kafka.common.requests.ShareGroupHeartbeatResponse;

/** A consumer of a share group: it takes what it is assigned, and has nothing to give up. */
final class ShareConsumer extends MemberByHeartbeat {
    private List<String> topics;
    private boolean subscriptionChanged = false;

    ShareConsumer(World world, Plan.Client plan, int run) {
        super(world, plan, run, newMemberId(world, plan, run));
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
        return -1;
    }

    @Override
    void loseAssignment() {
    }

    @Override
    boolean reconcile() {
        return false;
    }

    @Override
    void send(int epoch) {
        ShareGroupHeartbeatRequestData data = new ShareGroupHeartbeatRequestData()
            .setGroupId(plan.group()).setMemberId(memberId()).setMemberEpoch(epoch);
        if (epoch >= 0 && (epoch == 0 || resendsAll() || subscriptionChanged)) data.setSubscribedTopicNames(topics);
        subscriptionChanged = false;
        this.<ShareGroupHeartbeatResponse>send(
            new ShareGroupHeartbeatRequest.Builder(data).build((short) 1), REQUEST_TIMEOUT_MS,
            answer -> answered(epoch, answer.data()), this::unanswered);
    }

    private void answered(int epochAsked, ShareGroupHeartbeatResponseData data) {
        heard(epochAsked, Errors.forCode(data.errorCode()), data.memberEpoch(), data.memberId(),
            data.heartbeatIntervalMs());
    }
}
