package oracle;

import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.ShareGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.generated.StreamsGroupMemberMetadataValue;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Hosts of clients as a broker writes them: it reads an address from a socket, without a name; the tests have one. */
final class Hosts {
    private Hosts() {
    }

    static CoordinatorRecord withoutNames(CoordinatorRecord record) {
        ApiMessage value = (ApiMessage) record.value().message().duplicate();
        if (value instanceof GroupMetadataValue group)
            group.members().forEach(member -> member.setClientHost(bare(member.clientHost())));
        if (value instanceof ConsumerGroupMemberMetadataValue member) member.setClientHost(bare(member.clientHost()));
        if (value instanceof ShareGroupMemberMetadataValue member) member.setClientHost(bare(member.clientHost()));
        if (value instanceof StreamsGroupMemberMetadataValue member) member.setClientHost(bare(member.clientHost()));
        return CoordinatorRecord.record(record.key(), new ApiMessageAndVersion(value, record.value().version()));
    }

    private static String bare(String host) {
        return host.substring(Math.max(0, host.indexOf('/')));
    }
}
