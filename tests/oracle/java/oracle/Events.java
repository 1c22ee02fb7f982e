package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What can happen to a client, a broker or the cluster: one method each, named in a plan's events. */
final class Events {
    private static final long METADATA_US = 20 * Agenda.MS;

    private final World world;

    Events(World world) {
        this.world = world;
    }

    void happen(Plan.Event event) {
        Actor actor = world.actors().get(event.who());
        if (actor != null) befall(actor, event);
        else befall(broker(event.who()), event);
    }

    private Broker broker(String who) {
        return who == null ? world.offsets().leader() : world.brokers().get(Integer.parseInt(who) - 1);
    }

    private void befall(Actor actor, Plan.Event event) {
        if (event.what().equals("start")) actor.start();
        if (!actor.isAlive()) return;
        Client client = actor.client();
        switch (event.what()) {
            case "start" -> { }
            case "kill" -> client.kill();
            case "close" -> client.close();
            case "freeze" -> client.freeze();
            case "thaw" -> client.thaw();
            case "stall" -> client.stall(true);
            case "wake" -> client.stall(false);
            case "subscribe" -> client.subscribe(names(event.with().get("topics")));
            case "cut" -> client.cutOff(ms(event, "for_ms"));
            case "disconnect" -> client.loseConnection();
            default -> throw new IllegalArgumentException(event.what());
        }
    }

    private void befall(Broker broker, Plan.Event event) {
        switch (event.what()) {
            case "pause" -> broker.pause();
            case "resume" -> broker.resume();
            case "crash" -> broker.crash();
            case "restart" -> restart(broker, event);
            case "elect" -> elect(broker, event.with().get("tail").asBoolean(), ms(event, "late_ms"), ms(event, "load_ms"));
            case "stall-writes" -> world.offsets().stall(ms(event, "for_ms"));
            case "step-clock" -> broker.time().step(event.with().get("by_ms").asLong() * Agenda.MS);
            case "compact" -> broker.replica().compact(event.with().get("active").asInt());
            case "grow-topics" -> growTopics(event.with().get("topics"));
            default -> throw new IllegalArgumentException(event.what());
        }
    }

    private void restart(Broker broker, Plan.Event event) {
        broker.crash();
        world.start(broker);
        broker.run().learnLeader(world.offsets().leader(), world.offsets().epoch(), METADATA_US, 0);
        if (world.offsets().leader() == broker) elect(broker, true, METADATA_US, ms(event, "load_ms"));
    }

    /** {@code lateUs}: how long the deposed leader still believes that it leads. */
    void elect(Broker broker, boolean tailFetched, long lateUs, long loadUs) {
        Broker before = world.offsets().leader();
        // A broker applies metadata in order: it resigns and follows before it can be elected again.
        if (broker != before && broker.believesToLead()) broker.run().resign(before, world.offsets().epoch());
        world.offsets().elect(broker, tailFetched);
        for (Broker each : world.brokers())
            if (each.isUp())
                each.run().learnLeader(broker, world.offsets().epoch(), each == before ? lateUs : METADATA_US, loadUs);
    }

    private void growTopics(JsonNode wanted) {
        Map<String, Integer> counts = new HashMap<>();
        wanted.properties().forEach(each -> counts.put(each.getKey(), each.getValue().asInt()));
        Topics.Change change = world.topics().grow(counts);
        for (Broker each : world.brokers())
            if (each.isUp()) each.run().learnTopics(change.delta(), change.image(), METADATA_US);
        for (Actor actor : world.actors().values())
            if (actor.isAlive()) actor.client().topicsChanged();
    }

    private static long ms(Plan.Event event, String name) {
        JsonNode value = event.with() == null ? null : event.with().get(name);
        return value == null ? 0 : value.asLong() * Agenda.MS;
    }

    private static List<String> names(JsonNode array) {
        List<String> names = new ArrayList<>();
        array.forEach(each -> names.add(each.asText()));
        return names;
    }
}
