package oracle;

import java.net.InetAddress;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.LeaveGroupResponseData;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.JoinGroupResponse;
import org.apache.kafka.common.requests.LeaveGroupResponse;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;

/** A request that a test made of the coordinator, as a broker would have read it from a connection. */
final class Call {
    private static final ClientInformation SOFTWARE = new ClientInformation("apache-kafka-java", "4.3.1");
    private static final int STAGE_US = 100;

    final Callers.Line line;
    final boolean waits;
    private final Exchange exchange;

    /**
     * {@code version}: the lowest that the test means; a request with newer fields has the first version that has them.
     */
    Call(Callers.Line line, ApiMessage data, int version, String clientId, InetAddress address, long atMs, boolean waits) {
        this.line = line;
        this.waits = waits;
        AbstractRequest request = request(ApiKeys.forId(data.apiKey()), data, (short) version);
        RequestHeader header =
            new RequestHeader(request.apiKey(), request.version(), clientId, line.nextCorrelationId());
        RequestContext context = new RequestContext(header, line.id, address, KafkaPrincipal.ANONYMOUS,
            ListenerName.forSecurityProtocol(SecurityProtocol.PLAINTEXT), SecurityProtocol.PLAINTEXT, SOFTWARE, false);
        exchange = new Exchange(context, request, null);
        exchange.receivedUs = atMs * Agenda.MS;
        exchange.dequeuedUs = exchange.receivedUs + STAGE_US;
        exchange.localDoneUs = exchange.dequeuedUs + STAGE_US;
    }

    private static AbstractRequest request(ApiKeys api, ApiMessage data, short version) {
        for (short v = version; ; v++) {
            try {
                ByteBufferAccessor bytes = MessageUtil.toByteBufferAccessor(data, v);
                return AbstractRequest.parseRequest(api, v, bytes).request;
            } catch (UnsupportedVersionException tooOld) {
                if (v >= api.latestVersion()) throw tooOld;
            }
        }
    }

    void answer(ApiMessage response) {
        exchange.response = response(exchange.request.apiKey(), response, exchange.request.version());
    }

    void answer(Throwable error) {
        exchange.response = exchange.request.getErrorResponse(error);
    }

    ApiMessage response() {
        return exchange.response.data();
    }

    /** The line that the broker writes for it if it is answered now. */
    String logged(long nowMs) {
        exchange.completedUs = Math.max(exchange.localDoneUs, nowMs * Agenda.MS + 2 * STAGE_US);
        exchange.sendingUs = exchange.completedUs + STAGE_US;
        return RequestLog.line(exchange, exchange.sendingUs + STAGE_US);
    }

    private static AbstractResponse response(ApiKeys api, ApiMessage data, short version) {
        if (data instanceof JoinGroupResponseData join) return new JoinGroupResponse(join.duplicate(), version);
        if (data instanceof LeaveGroupResponseData leave) return new LeaveGroupResponse(leave, version);
        return AbstractResponse.parseResponse(api, MessageUtil.toByteBufferAccessor(data, version), version);
    }
}
