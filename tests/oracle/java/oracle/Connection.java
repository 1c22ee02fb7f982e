package oracle;

import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.function.Consumer;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;

/** A client's connection to one run of a broker, which reads the next request once it has answered the last one. */
final class Connection {
    private static final ListenerName LISTENER = new ListenerName("PLAINTEXT");
    private static final ClientInformation SOFTWARE = new ClientInformation("apache-kafka-java", "4.3.1");

    /** Who connects: what the broker's lines and records show of a client. */
    record Peer(String clientId, String library, InetAddress address, int port) {
    }

    final Broker.Run broker;
    private final Peer peer;
    private final String id;
    private final ClientInformation software;
    private final Program.Thread thread;
    private final Runnable whenReset;
    private final ArrayDeque<Exchange> inbox = new ArrayDeque<>();
    private boolean busy = false;
    private boolean open = true;
    private int correlationId = 0;

    Connection(Broker.Run broker, Peer peer, int index, Program.Thread thread, Runnable whenReset) {
        this.broker = broker;
        this.peer = peer;
        this.thread = thread;
        this.whenReset = whenReset;
        software = peer.library().equals("java") ? SOFTWARE : new ClientInformation(peer.library(), "2.0");
        id = broker.address() + "-" + peer.address().getHostAddress() + ":" + peer.port() + "-0-" + index;
    }

    boolean isOpen() {
        return open && broker.isAlive();
    }

    /**
     * The client closes its end. Requests on their way still arrive; the broker handles them and writes their lines.
     */
    void close() {
        open = false;
        inbox.clear();
    }

    /** The broker's end closes with its program. */
    void reset() {
        if (open) whenReset.run();
        open = false;
    }

    /** To be called when the bytes of a request arrive. The answer comes when its last byte has been written. */
    void receive(AbstractRequest request, Consumer<AbstractResponse> whenAnswered) {
        RequestHeader header =
            new RequestHeader(request.apiKey(), request.version(), peer.clientId(), correlationId++);
        RequestContext context = new RequestContext(
            header, id, peer.address(), KafkaPrincipal.ANONYMOUS, LISTENER, SecurityProtocol.PLAINTEXT, software, false);
        ByteBuffer bytes = request.serialize().buffer();
        AbstractRequest parsed =
            AbstractRequest.parseRequest(request.apiKey(), request.version(), new ByteBufferAccessor(bytes)).request;
        Exchange exchange = new Exchange(context, parsed, whenAnswered);
        thread.after(0, () -> {
            if (open || !busy) inbox.add(exchange);
            readNext();
        });
    }

    private void readNext() {
        if (busy || inbox.isEmpty()) return;
        busy = true;
        broker.process(inbox.poll(), thread, this::answered);
    }

    private void answered(Exchange exchange) {
        busy = false;
        if (open) exchange.whenAnswered.accept(exchange.response);
        readNext();
    }
}
