package oracle;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;

/**
 * A life as it was drawn: which clients there are, and what happens to them when. `tests/oracle/plans.py` draws plans
 * and says what each field means. Names of times end in their unit; a range is [least, most].
 */
record Plan(
    long seed,
    @JsonProperty("start_ms") long startMs,
    @JsonProperty("until_ms") long untilMs,
    @JsonProperty("clock_offsets_ms") List<Long> clockOffsetsMs,
    Map<String, String> config,
    @JsonProperty("group_config") Map<String, Map<String, String>> groupConfig,
    Ranges ranges,
    Map<String, Integer> topics,
    @JsonProperty("metadata_ms") long metadataMs,
    List<Client> clients,
    List<Event> events) {

    boolean clocksStep() {
        return events.stream().anyMatch(event -> event.what().equals("step-clock"));
    }

    /** How long things take, in microseconds. */
    record Ranges(
        List<Long> network, List<Long> queue, List<Long> local, List<Long> respond, List<Long> send,
        List<Long> replicate, List<Long> load, List<Long> ship) {
    }

    /** A client application, as it is at each start. */
    record Client(
        String name, String protocol, String group, String host, String instance, int version, String library,
        @JsonProperty("session_ms") int sessionMs,
        @JsonProperty("rebalance_ms") int rebalanceMs,
        @JsonProperty("heartbeat_ms") int heartbeatMs,
        @JsonProperty("poll_ms") List<Long> pollMs,
        @JsonProperty("commit_ms") int commitMs,
        List<String> topics, String regex, List<String> assignors) {
    }

    /** Something that happens to a client or a broker; {@code with} has its arguments. */
    record Event(@JsonProperty("at_ms") long atMs, @JsonProperty("do") String what, String who, JsonNode with) {
    }
}
