package kafkagroupmonitor;

import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** As AcceptPushes, for brokers of Kafka 3.7 to 4.1, which do not have its interface. */
@SuppressWarnings("removal") // gone in Kafka 5.0
public final class AcceptPushesBefore42 extends ReportsNothing implements ClientTelemetry, ClientTelemetryReceiver {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {}
}
