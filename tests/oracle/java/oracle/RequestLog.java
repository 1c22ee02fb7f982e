package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Optional;
import org.apache.kafka.network.RequestConvertToJson;
import org.apache.kafka.network.Session;

/** The line that {@code kafka.request.logger} writes for an answered request, made by Kafka's own code. */
final class RequestLog {
    private RequestLog() {
    }

    static String line(Exchange x, long endUs) {
        JsonNode request = RequestConvertToJson.request(x.request);
        JsonNode response = RequestConvertToJson.response(x.response, x.context.apiVersion());
        Session session = new Session(x.context.principal, x.context.clientAddress);
        JsonNode line = RequestConvertToJson.requestDescMetrics(
            x.context.header, Optional.of(request), Optional.of(response), x.context, session, false,
            ms(endUs - x.receivedUs), ms(x.dequeuedUs - x.receivedUs), ms(x.localDoneUs - x.dequeuedUs),
            ms(x.completedUs - x.localDoneUs), 0, ms(x.sendingUs - x.completedUs), ms(endUs - x.sendingUs), 0, 0);
        return "Completed request:" + line;
    }

    private static double ms(long us) {
        return Math.max(us, 0) / 1000.0;
    }
}
