package kafkagroupmonitor;

import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * For metric.reporters of brokers from Kafka 4.2 on: makes a broker accept the metrics that clients push (KIP-714).
 *
 * It does nothing with them. The monitor reads them from the request log.
 */
public final class AcceptPushes extends ReportsNothing implements ClientTelemetryExporterProvider, ClientTelemetryExporter {
    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return this;
    }

    @Override
    public void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {}
}
