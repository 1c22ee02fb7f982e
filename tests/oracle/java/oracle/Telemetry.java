package oracle;

import java.util.EnumSet;
import java.util.Set;
import org.apache.kafka.common.protocol.ApiKeys;

/** What the filter of our telemetry snippet (`streaming/embedded/broker-log4j2.yaml`) lets through. */
final class Telemetry {
    private static final Set<ApiKeys> KEPT = EnumSet.of(
        ApiKeys.HEARTBEAT, ApiKeys.JOIN_GROUP, ApiKeys.SYNC_GROUP, ApiKeys.LEAVE_GROUP, ApiKeys.LIST_GROUPS,
        ApiKeys.CONSUMER_GROUP_HEARTBEAT, ApiKeys.SHARE_GROUP_HEARTBEAT, ApiKeys.STREAMS_GROUP_HEARTBEAT);

    private Telemetry() {
    }

    static boolean keeps(ApiKeys api) {
        return KEPT.contains(api);
    }
}
