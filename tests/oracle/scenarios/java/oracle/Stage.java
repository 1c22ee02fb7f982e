package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.PriorityQueue;
import org.apache.kafka.common.utils.MockTime;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.common.runtime.MockCoordinatorTimer;
import org.apache.kafka.coordinator.common.runtime.MockCoordinatorTimer.ExpiredTimeout;
import org.apache.kafka.coordinator.common.runtime.MockCoordinatorTimer.ScheduledTimeout;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.GroupMetadataManager;
import org.apache.kafka.coordinator.group.LiveGroups;

/** The coordinator of one test, with the mocks that Kafka's {@code GroupMetadataManagerTestContext} puts around it. */
final class Stage {
    static final long FIRST_MS = 1_000; // as the mock clock has it where a test leaves it alone

    private final Object context;
    private final MockTime time;
    private final MockCoordinatorTimer<?> timer;
    private final GroupMetadataManager groups;
    private final GroupCoordinatorConfig config;
    private final PriorityQueue<ScheduledTimeout<?>> timeouts;
    private final long begunMs;

    /** {@code parts}: the constructor arguments of the context. */
    @SuppressWarnings("unchecked")
    Stage(Object context, Object[] parts) {
        this.context = context;
        time = only(MockTime.class, parts);
        timer = only(MockCoordinatorTimer.class, parts);
        begunMs = time.milliseconds();
        groups = only(GroupMetadataManager.class, parts);
        config = only(GroupCoordinatorConfig.class, parts);
        try {
            Field queue = MockCoordinatorTimer.class.getDeclaredField("timeoutQueue");
            queue.setAccessible(true);
            timeouts = (PriorityQueue<ScheduledTimeout<?>>) queue.get(timer);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static <T> T only(Class<T> type, Object[] parts) {
        for (Object part : parts)
            if (type.isInstance(part)) return type.cast(part);
        throw new IllegalArgumentException("a context without " + type);
    }

    /** By the clock of the test, which starts here at {@link #FIRST_MS}, whatever it was set to. */
    long nowMs() {
        return time.milliseconds() - begunMs + FIRST_MS;
    }

    /** When the first timer that is set is due. */
    OptionalLong firstDueMs() {
        return timeouts.isEmpty() ? OptionalLong.empty() : OptionalLong.of(timeouts.peek().deadlineMs() - begunMs + FIRST_MS);
    }

    private OptionalLong dueMs(String key) {
        ScheduledTimeout<?> timeout = timer.timeout(key);
        return timeout == null ? OptionalLong.empty() : OptionalLong.of(timeout.deadlineMs() - begunMs + FIRST_MS);
    }

    /** The groups as the coordinator's objects hold them; null where some lack parts. */
    JsonNode liveGroups() {
        try {
            return new LiveGroups(groups, this::dueMs).describe();
        } catch (NullPointerException unfinished) {
            return null; // a member of one record alone, where a coordinator writes several
        }
    }

    /** Lets time pass, as a test does: what is due runs, and its records are replayed; here they are stored, too. */
    void sleep(long ms) throws ReflectiveOperationException {
        for (Object each : (List<?>) call("sleep", new Class<?>[] {long.class}, ms)) stored(((ExpiredTimeout<?>) each).result());
        call("processTasks", new Class<?>[0]);
    }

    /** Does what the runtime does with the records of a result; many tests leave that out. */
    void apply(CoordinatorRecord record) throws ReflectiveOperationException {
        call("replay", new Class<?>[] {CoordinatorRecord.class}, record);
    }

    private static void stored(CoordinatorResult<?, ?> result) {
        if (result.appendFuture() != null) result.appendFuture().complete(null);
    }

    private Object call(String name, Class<?>[] types, Object... arguments) throws ReflectiveOperationException {
        Method method = context.getClass().getMethod(name, types);
        return method.invoke(context, arguments);
    }

    /** The monitor's settings for the cluster: session timeouts. */
    Map<String, Integer> sessionTimeoutsMs() {
        return Map.of(
            "consumer", config.consumerGroupSessionTimeoutMs(),
            "share", config.shareGroupSessionTimeoutMs(),
            "streams", config.streamsGroupSessionTimeoutMs());
    }
}
