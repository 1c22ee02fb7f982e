package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.logging.log4j.core.LogEvent;

/** One life: its brokers and clients, and what happens to them. */
final class World {
    private static final long LOOK_EVERY_US = 1_500 * Agenda.MS;
    private static final long FIRST_METADATA_US = 700 * Agenda.MS;

    private final Plan plan;
    private final Recorder recorder;
    private final Agenda agenda = new Agenda();
    private final Topics topics = new Topics();
    private final List<Broker> brokers = new ArrayList<>();
    private final Map<String, Actor> actors = new LinkedHashMap<>();
    private final OffsetsTopic offsets;
    private final Map<String, Dice> ids = new HashMap<>();
    private final Dice metadataDice;
    private int port = 20_000;

    World(Plan plan, Recorder recorder) {
        this.plan = plan;
        this.recorder = recorder;
        metadataDice = new Dice(plan.seed(), "metadata");
        offsets = new OffsetsTopic(
            agenda, plan.ranges().replicate(), new Dice(plan.seed(), "replication"), recorder);
        for (Plan.Client client : plan.clients()) actors.put(client.name(), new Actor(this, client));
        for (int n = 0; n < plan.clockOffsetsMs().size(); n++)
            brokers.add(new Broker(n + 1, this, plan.clockOffsetsMs().get(n)));
    }

    void play() {
        topics.grow(plan.topics());
        brokers.forEach(this::start);
        Events events = new Events(this);
        events.elect(brokers.get(0), true, 0, 0);
        brokers.forEach(broker -> new Prober(this, broker).start());
        plan.events().forEach(event -> agenda.at(event.atMs() * Agenda.MS, () -> events.happen(event)));
        agenda.at(LOOK_EVERY_US, this::look);
        if (plan.metadataMs() > 0) agenda.at(FIRST_METADATA_US, this::askMetadata);
        agenda.runUntil(plan.untilMs() * Agenda.MS);
    }

    void start(Broker broker) {
        broker.start();
        Topics.Change all = topics.all();
        broker.run().learnTopics(all.delta(), all.image(), 0);
    }

    Plan plan() {
        return plan;
    }

    Agenda agenda() {
        return agenda;
    }

    Recorder recorder() {
        return recorder;
    }

    OffsetsTopic offsets() {
        return offsets;
    }

    Topics topics() {
        return topics;
    }

    List<Broker> brokers() {
        return brokers;
    }

    Map<String, Actor> actors() {
        return actors;
    }

    long realMs() {
        return plan.startMs() + agenda.nowUs() / Agenda.MS;
    }

    /** The source of random ids that are made for a client. */
    Dice idsOf(String clientId) {
        return ids.computeIfAbsent(clientId, id -> new Dice(plan.seed(), "ids of " + id));
    }

    int nextPort() {
        return port++;
    }

    /** The coordinator according to a broker chosen at random; null if nobody answers or knows. */
    Broker coordinatorToldTo(Dice dice) {
        Broker asked = brokers.get((int) dice.between(0, brokers.size() - 1));
        if (!asked.isUp() || asked.isPaused()) return null;
        Broker told = asked.run().leader();
        return told != null && told.isUp() ? told : null;
    }

    void log(int brokerId, LogEvent event, String message) {
        long atMs = brokerId == 0 ? realMs() : brokers.get(brokerId - 1).time().milliseconds();
        recorder.log(brokerId, atMs, realMs(), event.getLevel().name(), message, event.getLoggerName());
    }

    /**
     * What the monitor learns about who leads: what a broker chosen at random believes, dated by that broker's clock
     * without its steps. In a run the monitor's own clock dates it.
     */
    private void askMetadata() {
        agenda.after(plan.metadataMs() * Agenda.MS, this::askMetadata);
        Broker asked = brokers.get((int) metadataDice.between(0, brokers.size() - 1));
        if (!asked.isUp() || asked.isPaused()) return;
        Broker leader = asked.run().leader();
        List<Integer> up = brokers.stream().filter(Broker::isUp).map(Broker::id).toList();
        recorder.cluster(
            asked.time().withoutStepsMs(), leader != null && leader.isUp() ? (Integer) leader.id() : null,
            asked.run().leaderEpoch(), up);
    }

    /** Writes the coordinator's live groups if nothing about them is still on its way to the capture. */
    private void look() {
        agenda.after(LOOK_EVERY_US, this::look);
        if (plan.clocksStep()) recorder.read(realMs());
        Broker leader = offsets.leader();
        if (!leader.isUp() || !offsets.isSettled() || !leader.believesToLead()) return;
        JsonNode groups = leader.run().liveGroups();
        long parked = groups.findValues("parked").stream().filter(JsonNode::asBoolean).count();
        if (leader.run().isQuiet(parked))
            recorder.look(leader.id(), leader.time().milliseconds(), realMs(), groups);
    }
}
