package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import java.util.function.Consumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.coordinator.group.OpenCoordinator;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;

/** A broker's machine: its clock and its copy of the log, which outlive each {@link Run} of the broker on it. */
final class Broker {
    static final TopicPartition PARTITION = new TopicPartition(Topic.GROUP_METADATA_TOPIC_NAME, 0);

    private final int id;
    private final World world;
    private final BrokerTime time;
    private final Replica replica = new Replica();
    private Run run;
    private int runs = 0;
    private boolean believesToLead = false;
    private long loadUs;

    Broker(int id, World world, long clockOffsetMs) {
        this.id = id;
        this.world = world;
        time = new BrokerTime(world.agenda(), world.plan().startMs(), clockOffsetMs * Agenda.MS);
    }

    int id() {
        return id;
    }

    BrokerTime time() {
        return time;
    }

    Replica replica() {
        return replica;
    }

    Run run() {
        return run;
    }

    boolean isUp() {
        return run != null && run.isAlive();
    }

    boolean isPaused() {
        return isUp() && run.program.isPaused();
    }

    boolean believesToLead() {
        return believesToLead;
    }

    Program.Thread replication() {
        return run.replication;
    }

    Program.Thread loading() {
        return run.loading;
    }

    long loadUs() {
        return loadUs;
    }

    void onHighWatermark(long offset) {
        run.writer.highWatermark(PARTITION, offset);
    }

    void start() {
        run = new Run(new Dice(world.plan().seed(), "broker-" + id + " run " + runs++));
    }

    void crash() {
        if (!isUp()) return;
        run.program.kill();
        run.connections.forEach(Connection::reset);
        believesToLead = false;
    }

    void pause() {
        if (isUp()) run.program.pause();
    }

    void resume() {
        if (isUp()) run.program.resume();
    }

    /** One start of the broker, until it is killed. */
    final class Run {
        final Dice dice;
        private final Program program;
        private final Program.Thread replication;
        private final Program.Thread loading;
        private final Program.Thread controller;
        private final Program.Thread shipper;
        private final CoordinatorThread coordinatorThread;
        private final OffsetsWriter writer;
        private final OffsetsLoader loader = new OffsetsLoader(Broker.this);
        private final OpenCoordinator coordinator;
        private final Apis apis;
        private final List<Connection> connections = new ArrayList<>();
        private Broker leader;
        private int leaderEpoch = -1;
        private int inFlight = 0;
        private int unshipped = 0;
        private long shippedUs = 0;

        private Run(Dice dice) {
            this.dice = dice;
            program = new Program(world.agenda(), dice);
            replication = program.newThread();
            loading = program.newThread();
            controller = program.newThread();
            shipper = program.newThread();
            coordinatorThread = new CoordinatorThread(program.newThread(), dice);
            writer = new OffsetsWriter(Broker.this, world.offsets());
            coordinator = new OpenCoordinator(new OpenCoordinator.Parts(
                id, world.plan().config(), world.plan().groupConfig(), time, new BrokerTimer(time, program.newThread()),
                coordinatorThread, new Background(program.newThread(), dice), writer, loader));
            apis = new Apis(coordinator.service());
            coordinator.service().startup(() -> 1);
        }

        boolean isAlive() {
            return program.isAlive();
        }

        String address() {
            return "10.0.0." + id + ":9092";
        }

        Connection connect(Connection.Peer peer, Runnable whenReset) {
            Connection connection = new Connection(this, peer, connections.size(), program.newThread(), whenReset);
            connections.add(connection);
            return connection;
        }

        JsonNode liveGroups() {
            return coordinator.liveGroups().describe();
        }

        /** Whether every request is answered, except {@code parked} ones, and all lines are shipped. */
        boolean isQuiet(long parked) {
            return !program.isPaused() && !loader.isLoading() && coordinatorThread.isIdle()
                && unshipped == 0 && inFlight == parked;
        }

        void process(Exchange x, Program.Thread network, Consumer<Exchange> whenSent) {
            Plan.Ranges ranges = world.plan().ranges();
            x.receivedUs = now();
            inFlight++;
            network.after(dice.between(ranges.queue()), () -> {
                x.dequeuedUs = now();
                long localUs = dice.between(ranges.local());
                SeededIds.drawFrom(world.idsOf(x.context.clientId()));
                apis.handle(x.context, x.request).whenComplete((response, error) -> {
                    x.response = response;
                    x.completedUs = now();
                    x.localDoneUs = Math.min(x.completedUs, x.dequeuedUs + localUs);
                    network.after(dice.between(ranges.respond()), () -> send(x, network, whenSent));
                });
            });
        }

        private void send(Exchange x, Program.Thread network, Consumer<Exchange> whenSent) {
            x.sendingUs = now();
            network.after(dice.between(world.plan().ranges().send()), () -> {
                inFlight--;
                if (Telemetry.keeps(x.request.apiKey())) ship(RequestLog.line(x, now()), time.milliseconds());
                whenSent.accept(x);
            });
        }

        private void ship(String line, long atMs) {
            unshipped++;
            shippedUs = Math.max(shippedUs, now() + dice.between(world.plan().ranges().ship()));
            shipper.at(shippedUs, () -> {
                unshipped--;
                world.recorder().line(id, atMs, line);
            });
        }

        /** The broker that this broker believes to be the leader; null before it has heard of one. */
        Broker leader() {
            return leader;
        }

        int leaderEpoch() {
            return leaderEpoch;
        }

        /** The controller tells this broker who leads. */
        void learnLeader(Broker elected, int epoch, long delayUs, long loadingUs) {
            controller.after(delayUs, () -> {
                if (epoch < leaderEpoch) return;
                if (elected != Broker.this) {
                    resign(elected, epoch);
                    return;
                }
                leader = elected;
                leaderEpoch = epoch;
                loadUs = loadingUs;
                believesToLead = true;
                coordinator.service().onElection(0, epoch);
            });
        }

        void resign(Broker elected, int epoch) {
            leader = elected;
            leaderEpoch = epoch;
            believesToLead = false;
            coordinator.service().onResignation(0, OptionalInt.of(epoch));
        }

        void learnTopics(MetadataDelta delta, MetadataImage image, long delayUs) {
            controller.after(delayUs, () -> coordinator.service().onMetadataUpdate(delta, image));
        }

        private long now() {
            return world.agenda().nowUs();
        }
    }
}
