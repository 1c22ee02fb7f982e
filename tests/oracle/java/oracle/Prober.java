package oracle;

import java.util.List;
import org.apache.kafka.common.message.ListGroupsRequestData;
import org.apache.kafka.common.requests.ListGroupsRequest;
import java.net.InetAddress;

/** The monitor's probe of one broker (`streaming/run/probe.py`): asks it something tiny every half second. */
final class Prober {
    private static final long INTERVAL_US = 500 * Agenda.MS;
    private static final long TIMEOUT_US = 5_000 * Agenda.MS;
    private static final String NONCE = "0123456789abcdef";

    private final World world;
    private final Broker broker;
    private final Dice dice;
    private Connection connection;
    private long answers = 0;
    private long asked = 0;
    private boolean waits = false;

    Prober(World world, Broker broker) {
        this.world = world;
        this.broker = broker;
        dice = new Dice(world.plan().seed(), "probe of " + broker.id());
    }

    void start() {
        world.agenda().after(dice.between(0, INTERVAL_US), this::ask);
    }

    private void ask() {
        world.agenda().after(INTERVAL_US, this::ask);
        if (waits || !broker.isUp()) return;
        if (connection == null || !connection.isOpen()) {
            connection = broker.run().connect(peer(), () -> waits = false);
            answers = 0;
        }
        waits = true;
        long number = ++asked;
        List<String> states = List.of("probe-" + (answers + 1), "asked-" + NONCE + "-" + broker.id());
        ListGroupsRequest request =
            new ListGroupsRequest.Builder(new ListGroupsRequestData().setStatesFilter(states)).build((short) 5);
        Connection on = connection;
        world.agenda().after(oneWayUs(), () -> on.receive(request, response ->
            world.agenda().after(oneWayUs(), () -> answered(number))));
        world.agenda().after(TIMEOUT_US, () -> giveUp(number));
    }

    private Connection.Peer peer() {
        return new Connection.Peer("group-monitor-probe", "kafka-python",
            InetAddress.getLoopbackAddress(), world.nextPort());
    }

    private void answered(long number) {
        if (number != asked) return;
        answers++;
        waits = false;
    }

    private void giveUp(long number) {
        if (number != asked || !waits) return;
        connection.close();
        waits = false;
    }

    private long oneWayUs() {
        return dice.between(world.plan().ranges().network());
    }
}
