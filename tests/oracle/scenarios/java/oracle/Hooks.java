package oracle;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.common.runtime.MockCoordinatorExecutor.ExecutorResult;
import org.apache.kafka.coordinator.common.runtime.MockCoordinatorTimer.ExpiredTimeout;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * The methods that {@link Weaving} makes Kafka's classes call. They are public because the calls come from other
 * packages.
 */
public final class Hooks {
    private static Scenarios.Test test;

    private Hooks() {
    }

    static void into(Scenarios.Test next) {
        test = next;
    }

    private static Tape tape() {
        return test == null ? null : test.tape();
    }

    /** A coordinator was built with its mocks. */
    public static void built(Object context, Object[] parts) {
        if (test != null) test.begin(new Stage(context, parts));
    }

    public static void committed() {
        if (tape() != null) tape().commit();
    }

    public static void rolledBack() {
        if (tape() != null) tape().rollBack();
    }

    public static void replayed(CoordinatorRecord record) {
        if (tape() != null) tape().replayed(record);
    }

    /** A request came: its context, its data, and the future of an answer that may wait. */
    public static Object asked(Object[] arguments) {
        CompletableFuture<?> future = arguments.length > 2 ? (CompletableFuture<?>) arguments[2] : null;
        return tape() == null
            ? null : tape().ask((AuthorizableRequestContext) arguments[0], (ApiMessage) arguments[1], future);
    }

    public static void handled(Object call, Object result, Throwable thrown) {
        if (call != null) tape().handled((Call) call, (CoordinatorResult<?, ?>) result, thrown);
    }

    public static void entered() {
        if (tape() != null) tape().enter();
    }

    /** Something was done that no telemetry shows: its records are in its result, or were added to a list. */
    public static void done(Object[] arguments, Object result) {
        if (tape() == null) return;
        if (tape().isOutermost()) {
            if (result instanceof CoordinatorResult<?, ?> own) tape().write(own);
            for (Object argument : arguments)
                if (argument instanceof List<?> list) tape().write(list, null, true);
        }
        tape().exit();
    }

    public static void failed() {
        if (tape() != null) tape().exit();
    }

    /** Timers or tasks of the background were run. */
    public static void polled(List<?> results) {
        if (tape() == null) return;
        for (Object each : results)
            tape().write(each instanceof ExpiredTimeout<?> timeout ? timeout.result() : ((ExecutorResult<?>) each).result());
        tape().exit();
    }
}
