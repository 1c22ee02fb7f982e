package oracle;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatResponseData;
import org.apache.kafka.common.message.HeartbeatRequestData;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.LeaveGroupRequestData;
import org.apache.kafka.common.message.LeaveGroupRequestData.MemberIdentity;
import org.apache.kafka.common.message.ShareGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.SyncGroupRequestData;
import org.apache.kafka.common.protocol.ApiMessage;

/**
 * The connection by which a request of a test came: the tests name none. A member keeps its own, from the first answer
 * that names it. A request that comes while another one waits uses a new connection, because a broker reads one request
 * of a connection at a time.
 */
final class Callers {
    /** One client's connection to the broker. */
    static final class Line {
        final String id;
        private int correlationId = 0;
        private boolean waits = false;

        private Line(int number) {
            id = "10.0.0.1:9092-127.0.0.1:" + (20_000 + number) + "-0-" + number;
        }

        int nextCorrelationId() {
            waits = true;
            return correlationId++;
        }
    }

    private final Map<String, Line> byMember = new HashMap<>();
    private final Line probe = new Line(0);
    private int count = 0;

    Line probe() {
        return probe;
    }

    Line of(ApiMessage request) {
        String member = memberOf(request);
        Line known = byMember.get(member);
        if (member.isEmpty() || known == null || known.waits) {
            known = new Line(++count);
            if (!member.isEmpty()) byMember.put(member, known);
        }
        return known;
    }

    void answered(Line line, ApiMessage response) {
        line.waits = false;
        if (response instanceof JoinGroupResponseData join) byMember.put(join.memberId(), line);
        if (response instanceof ConsumerGroupHeartbeatResponseData beat && beat.memberId() != null)
            byMember.put(beat.memberId(), line);
    }

    private static String memberOf(ApiMessage request) {
        if (request instanceof JoinGroupRequestData join) return join.memberId();
        if (request instanceof SyncGroupRequestData sync) return sync.memberId();
        if (request instanceof HeartbeatRequestData beat) return beat.memberId();
        if (request instanceof ConsumerGroupHeartbeatRequestData beat) return beat.memberId();
        if (request instanceof ShareGroupHeartbeatRequestData beat) return beat.memberId();
        if (request instanceof StreamsGroupHeartbeatRequestData beat) return beat.memberId();
        List<MemberIdentity> leaving = ((LeaveGroupRequestData) request).members();
        return leaving.size() == 1 ? leaving.get(0).memberId() : "";
    }
}
