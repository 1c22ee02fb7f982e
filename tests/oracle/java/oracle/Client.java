package oracle;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/**
 * One run of a client application: its threads, and its connection to the coordinator. A request is answered, or lost
 * when it times out or the connection breaks; then the coordinator has to be found again.
 */
abstract class Client {
    static final long MS = Agenda.MS;
    static final long REQUEST_TIMEOUT_MS = 30_000;
    private static final long RETRY_BACKOFF_US = 100 * MS;

    private final class Call {
        final Connection connection;
        final Runnable whenLost;
        boolean done = false;

        Call(Connection connection, Runnable whenLost) {
            this.connection = connection;
            this.whenLost = whenLost;
        }

        boolean end() {
            boolean first = !done;
            done = true;
            calls.remove(this);
            return first;
        }
    }

    final World world;
    final Plan.Client plan;
    final Dice dice;
    final Program.Thread background;
    final Program.Thread application;
    private final Program program;
    private final Program.Thread network;
    private final List<Call> calls = new ArrayList<>();
    private Connection coordinator;
    private boolean findsCoordinator = false;
    private long reachableUs = 0;
    private long delivered = 0;

    Client(World world, Plan.Client plan, int run) {
        this.world = world;
        this.plan = plan;
        dice = new Dice(world.plan().seed(), plan.name() + " run " + run);
        program = new Program(world.agenda(), dice);
        network = program.newThread();
        background = program.newThread();
        application = program.newThread();
    }

    /** Start as a member. */
    abstract void start();

    /** Leave as the library does, then end. */
    abstract void close();

    /** The application's thread gets stuck between two polls, or continues. */
    abstract void stall(boolean stuck);

    abstract void subscribe(List<String> topics);

    /** Topics were created or grew, and the client's metadata shows it. */
    void topicsChanged() {
    }

    boolean isAlive() {
        return program.isAlive();
    }

    void freeze() {
        program.pause();
    }

    void thaw() {
        program.resume();
    }

    void kill() {
        program.kill();
        disconnect();
    }

    /** Nothing gets through to or from this client for some time. */
    void cutOff(long forUs) {
        reachableUs = now() + forUs;
    }

    /** The connection breaks, whatever is pending on it. */
    void loseConnection() {
        network.after(0, () -> lost(coordinator));
    }

    final long now() {
        return world.agenda().nowUs();
    }

    final boolean knowsCoordinator() {
        return coordinator != null && coordinator.isOpen();
    }

    final void forgetCoordinator() {
        disconnect();
        findCoordinator();
    }

    /** Asks who coordinates until a broker knows, then connects. */
    final void findCoordinator() {
        if (findsCoordinator || knowsCoordinator() || !isAlive()) return;
        findsCoordinator = true;
        network.after(2 * oneWayUs(), () -> {
            findsCoordinator = false;
            Broker broker = world.coordinatorToldTo(dice);
            if (broker == null) network.after(RETRY_BACKOFF_US, this::findCoordinator);
            else connect(broker);
        });
    }

    private void connect(Broker broker) {
        Connection.Peer peer = new Connection.Peer(plan.name(), plan.library(), address(plan.host()), world.nextPort());
        Connection[] made = new Connection[1];
        made[0] = broker.run().connect(peer, () -> network.after(oneWayUs(), () -> lost(made[0])));
        coordinator = made[0];
        delivered = 0;
    }

    private void disconnect() {
        if (coordinator != null) coordinator.close();
        coordinator = null;
    }

    private void lost(Connection connection) {
        if (connection == null) return;
        if (connection == coordinator) disconnect();
        for (Call call : List.copyOf(calls))
            if (call.connection == connection && call.end()) call.whenLost.run();
    }

    /** Sends to the coordinator; the request is lost at once if none is known. */
    final <T extends AbstractResponse> void send(
        AbstractRequest request, long timeoutMs, Consumer<T> whenAnswered, Runnable whenLost
    ) {
        Connection connection = coordinator;
        if (!knowsCoordinator()) {
            background.after(RETRY_BACKOFF_US, whenLost);
            return;
        }
        Call call = new Call(connection, whenLost);
        calls.add(call);
        delivered = Math.max(delivered + 1, now() + oneWayUs());
        world.agenda().at(delivered, () -> connection.receive(request, response ->
            network.after(oneWayUs(), () -> {
                if (call.end()) whenAnswered.accept(cast(response));
            })));
        background.after(timeoutMs * MS, () -> {
            if (!call.done) lost(connection);
        });
    }

    @SuppressWarnings("unchecked")
    private static <T extends AbstractResponse> T cast(AbstractResponse response) {
        return (T) response;
    }

    private long oneWayUs() {
        return Math.max(0, reachableUs - now()) + dice.between(world.plan().ranges().network());
    }

    private static InetAddress address(String host) {
        try {
            return InetAddress.getByName(host);
        } catch (UnknownHostException error) {
            throw new IllegalArgumentException(error);
        }
    }
}
