package oracle;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Writes a life as JSON Lines in the order in which its rows can be read: a capture (sources "offsets" and
 * "telemetry"), and what no monitor sees: the coordinators' log ("log"), their live groups ("look"), and what clients
 * know of themselves ("client").
 */
final class Recorder {
    @FunctionalInterface
    interface Fields {
        void write(JsonGenerator json) throws IOException;
    }

    private final JsonGenerator json;
    private final Map<Integer, Long> telemetryOffsets = new HashMap<>();
    private long records = 0;

    Recorder(JsonGenerator json) {
        this.json = json;
    }

    /** Writes a record at the next offset, for callers that keep no log of their own. */
    void append(long timestampMs, byte[] key, byte[] value) {
        record(new Replica.Entry(records++, timestampMs, key, value));
    }

    void record(Replica.Entry entry) {
        row("offsets", fields -> {
            place(fields, "__consumer_offsets", 0, entry.offset(), entry.timestampMs());
            fields.writeBinaryField("key", entry.key());
            if (entry.value() == null) fields.writeNullField("value");
            else fields.writeBinaryField("value", entry.value());
        });
    }

    void line(int brokerId, long timestampMs, String line) {
        long offset = telemetryOffsets.merge(brokerId, 1L, Long::sum) - 1;
        row("telemetry", fields -> {
            place(fields, "group-telemetry", brokerId, offset, timestampMs);
            fields.writeStringField("key", "broker-" + brokerId);
            fields.writeStringField("value", line);
        });
    }

    private static void place(JsonGenerator fields, String topic, int partition, long offset, long timestampMs)
        throws IOException {
        fields.writeStringField("topic", topic);
        fields.writeNumberField("partition", partition);
        fields.writeNumberField("offset", offset);
        fields.writeNumberField("timestamp_ms", timestampMs);
    }

    /**
     * A cluster row (docs/capture.md): who leads (null for nobody), and the telemetry keys of the brokers that are up.
     */
    void cluster(long timestampMs, Integer leader, int epoch, List<Integer> brokerIds) {
        row("cluster", fields -> {
            fields.writeNumberField("timestamp_ms", timestampMs);
            fields.writeArrayFieldStart("leaders");
            if (leader == null) fields.writeNull();
            else fields.writeNumber(leader);
            fields.writeEndArray();
            fields.writeArrayFieldStart("leader_epochs");
            fields.writeNumber(epoch);
            fields.writeEndArray();
            fields.writeObjectFieldStart("brokers");
            for (int id : brokerIds) {
                fields.writeObjectFieldStart(String.valueOf(id));
                fields.writeStringField("host", "10.0.0." + id);
                fields.writeNumberField("port", 9092);
                fields.writeStringField("key", telemetryOffsets.containsKey(id) ? "broker-" + id : null);
                fields.writeEndObject();
            }
            fields.writeEndObject();
        });
    }

    /** {@code lifeMs}: the time by the clock of the life, which no event steps. */
    void log(int brokerId, long timestampMs, long lifeMs, String level, String message, String logger) {
        row("log", fields -> {
            fields.writeNumberField("broker", brokerId);
            fields.writeNumberField("timestamp_ms", timestampMs);
            fields.writeNumberField("life_ms", lifeMs);
            fields.writeStringField("level", level);
            fields.writeStringField("message", message);
            fields.writeStringField("logger", logger);
        });
    }

    void look(int brokerId, long timestampMs, long lifeMs, JsonNode groups) {
        row("look", fields -> {
            fields.writeNumberField("broker", brokerId);
            fields.writeNumberField("timestamp_ms", timestampMs);
            fields.writeNumberField("life_ms", lifeMs);
            fields.writeFieldName("groups");
            fields.writeTree(groups);
        });
    }

    /** What was written so far is read at once, as in a run: its batches are short, and it has a clock of its own. */
    void read(long lifeMs) {
        row("read", fields -> fields.writeNumberField("life_ms", lifeMs));
    }

    void client(String name, String what, long timestampMs, String group, String memberId) {
        row("client", fields -> {
            fields.writeStringField("name", name);
            fields.writeStringField("what", what);
            fields.writeNumberField("timestamp_ms", timestampMs);
            fields.writeStringField("group", group);
            fields.writeStringField("member_id", memberId);
        });
    }

    /** Ends what one of Kafka's own tests has left: its name, why it failed, and the session timeouts of its brokers. */
    void scenario(String name, String failure, Map<String, Integer> sessionTimeoutsMs) {
        row("scenario", fields -> {
            fields.writeStringField("name", name);
            fields.writeStringField("failure", failure);
            fields.writePOJOField("session_timeouts_ms", sessionTimeoutsMs);
        });
    }

    void end() {
        row("end", fields -> { });
        try {
            json.flush();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void row(String source, Fields fields) {
        try {
            json.writeStartObject();
            json.writeStringField("source", source);
            fields.write(json);
            json.writeEndObject();
            json.writeRaw('\n');
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
