package oracle;

import java.util.function.Consumer;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestContext;

/** A request on its way through a broker, with the instants at which the request log measures it. */
final class Exchange {
    final RequestContext context;
    final AbstractRequest request;
    final Consumer<AbstractResponse> whenAnswered;
    long receivedUs;
    long dequeuedUs;
    long localDoneUs;
    long completedUs;
    long sendingUs;
    AbstractResponse response;

    Exchange(RequestContext context, AbstractRequest request, Consumer<AbstractResponse> whenAnswered) {
        this.context = context;
        this.request = request;
        this.whenAnswered = whenAnswered;
    }
}
