package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Consumer;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ListGroupsRequestData;
import org.apache.kafka.common.message.ListGroupsResponseData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.streams.StreamsGroupHeartbeatResult;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.logging.log4j.core.LogEvent;

/**
 * What one test leaves outside: its records in the offsets topic, a line of the request log for each answer, and beside
 * them the coordinator's own log and its live groups.
 *
 * The clock of these tests starts at 1 s after the epoch, and stands still unless a test sleeps. Here each step that
 * leaves something is a millisecond after the one before; otherwise nobody could tell their order.
 */
final class Tape implements LogCapture.Sink {
    private static final long AFTERLIFE_MS = 120_000;
    private static final long TRAIL_MS = 5_000;
    private static final long PROBE_EVERY_MS = 500;
    private static final long TIMERS_ARE_LATE_MS = 50;
    private static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

    private final Stage stage;
    private final List<Consumer<Recorder>> rows = new ArrayList<>();
    private final Set<CoordinatorRecord> written = Collections.newSetFromMap(new IdentityHashMap<>());
    private final List<CoordinatorRecord> unapplied = new ArrayList<>();
    private final List<Call> answered = new ArrayList<>();
    private final Callers callers = new Callers();
    private int depth = 0;
    private int rowsBefore = 0;
    private int rowsCommitted = 0;
    private long nowMs = Stage.FIRST_MS;
    private long toldMs = 0;
    private long probes = 0;

    Tape(Stage stage) {
        this.stage = stage;
    }

    Map<String, Integer> sessionTimeoutsMs() {
        return stage.sessionTimeoutsMs();
    }

    // ---------------------------------------------------------------- steps

    void step(Runnable action) {
        enter();
        action.run();
        exit();
    }

    void enter() {
        if (depth++ > 0) return;
        nowMs = Math.max(nowMs, stage.nowMs());
        catchUp();
        rowsBefore = rows.size();
    }

    void exit() {
        if (--depth > 0) return;
        List<Call> now = List.copyOf(answered);
        answered.clear();
        now.forEach(this::log);
        if (rows.size() > rowsBefore) nowMs++;
    }

    boolean isOutermost() {
        return depth == 1;
    }

    /**
     * Time has passed: how the groups were, and the probes of that time. If timers came late, the broker was paused.
     */
    private void catchUp() {
        if (nowMs - toldMs < PROBE_EVERY_MS) return;
        look();
        long dueMs = stage.firstDueMs().orElse(nowMs);
        long silentFromMs = nowMs - dueMs > TIMERS_ARE_LATE_MS ? dueMs - PROBE_EVERY_MS : nowMs;
        for (long atMs = toldMs + PROBE_EVERY_MS; atMs <= nowMs; atMs += PROBE_EVERY_MS) {
            if (atMs <= silentFromMs) probe(atMs);
            toldMs = atMs;
        }
    }

    private void look() {
        JsonNode groups = stage.liveGroups();
        long atMs = toldMs;
        if (groups != null) rows.add(recorder -> recorder.look(1, atMs, atMs, groups));
    }

    private void probe(long atMs) {
        ListGroupsRequestData asked = new ListGroupsRequestData().setStatesFilter(List.of("probe-" + ++probes));
        Call call = new Call(callers.probe(), asked, 5, "group-monitor-probe", InetAddress.getLoopbackAddress(), atMs, false);
        call.answer(new ListGroupsResponseData());
        String line = call.logged(atMs);
        rows.add(recorder -> recorder.line(1, atMs, line));
        if (probes == 1) rows.add(recorder -> recorder.cluster(atMs, 1, 0, List.of(1)));
    }

    // ---------------------------------------------------------------- what happens

    Call ask(AuthorizableRequestContext context, ApiMessage data, CompletableFuture<?> future) {
        if (depth > 0) return null;
        enter();
        Call call = new Call(callers.of(data), data, context.requestVersion(), context.clientId(),
            context.clientAddress(), nowMs, future != null);
        if (future != null) future.whenComplete((response, error) -> step(() -> answer(call, response, error)));
        return call;
    }

    void handled(Call call, CoordinatorResult<?, ?> result, Throwable thrown) {
        if (thrown == null) write(result);
        if (thrown != null || !call.waits) answer(call, thrown == null ? result.response() : null, thrown);
        exit();
    }

    private void answer(Call call, Object response, Throwable error) {
        if (error != null) call.answer(error instanceof CompletionException ? error.getCause() : error);
        else call.answer(dataOf(response));
        answered.add(call);
    }

    private static ApiMessage dataOf(Object response) {
        if (response instanceof Map.Entry<?, ?> share) return (ApiMessage) share.getKey();
        if (response instanceof StreamsGroupHeartbeatResult streams) return streams.data();
        return (ApiMessage) response;
    }

    private void log(Call call) {
        long atMs = nowMs;
        String line = call.logged(atMs);
        callers.answered(call.line, call.response());
        rows.add(recorder -> recorder.line(1, atMs, line));
    }

    void write(CoordinatorResult<?, ?> result) {
        write(result.records(), result.appendFuture(), result.replayRecords());
    }

    /** A record was replayed into the groups: if no result had it, the test wrote it itself. */
    void replayed(CoordinatorRecord record) {
        enter();
        unapplied.removeIf(each -> each == record);
        write(List.of(record), null, false);
        depth--; // a test's records are one write, however many
    }

    /** Writes the records of a list that are not written yet; they are lost if they cannot be stored. */
    void write(List<?> results, CompletableFuture<Void> stored, boolean toBeApplied) {
        for (Object each : results) {
            if (!(each instanceof CoordinatorRecord record) || !written.add(record)) continue;
            if (toBeApplied) unapplied.add(record);
            Consumer<Recorder> row = row(nowMs, record);
            rows.add(row);
            if (stored != null) stored.whenComplete((none, error) -> {
                if (error != null) rows.remove(row);
            });
        }
    }

    private static Consumer<Recorder> row(long atMs, CoordinatorRecord record) {
        try {
            byte[] key = SERDE.serializeKey(record);
            byte[] value = record.value() == null ? null : SERDE.serializeValue(Hosts.withoutNames(record));
            return recorder -> recorder.append(atMs, key, value);
        } catch (UnsupportedVersionException noBytes) {
            return recorder -> { }; // a test made it of a version that no broker writes
        }
    }

    @Override
    public void log(int brokerId, LogEvent event, String message) {
        long atMs = nowMs;
        String line = "[GroupCoordinator id=1] " + message;
        String level = event.getLevel().name();
        String logger = event.getLoggerName();
        rows.add(recorder -> recorder.log(1, atMs, atMs, level, line, logger));
    }

    /** What was written is stored. */
    void commit() {
        rowsCommitted = rows.size();
    }

    /** What was written since could not be stored, and the requests that caused it were not answered. */
    void rollBack() {
        rows.subList(Math.min(rowsCommitted, rows.size()), rows.size()).clear();
        unapplied.clear();
    }

    // ---------------------------------------------------------------- the end

    /** Lets the groups live on for a while without clients, then prints it all. */
    void end(Recorder recorder) {
        long untilMs = stage.nowMs() + AFTERLIFE_MS;
        try {
            for (CoordinatorRecord record : List.copyOf(unapplied)) stage.apply(record);
            while (stage.nowMs() < untilMs) {
                long dueMs = stage.firstDueMs().orElse(untilMs);
                if (dueMs == untilMs) untilMs = Math.min(untilMs, stage.nowMs() + TRAIL_MS);
                stage.sleep(Math.max(1, Math.min(dueMs, untilMs) - stage.nowMs()));
            }
        } catch (ReflectiveOperationException | RuntimeException error) {
            System.err.println("no timers after " + stage.nowMs() + " ms: " + error.getCause());
        }
        step(() -> { });
        rows.forEach(row -> row.accept(recorder));
    }
}
