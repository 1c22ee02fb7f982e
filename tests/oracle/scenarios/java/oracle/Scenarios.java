package oracle;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.Map;
import net.bytebuddy.agent.ByteBuddyAgent;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs a class of Kafka's own tests, and prints what each leaves outside: the rows of a life, then a row of source
 * "scenario". A test that builds several coordinators, one after the other, gives as many scenarios.
 */
public final class Scenarios {
    private Scenarios() {
    }

    public static void main(String[] arguments) throws IOException {
        SeededIds.install();
        Weaving.install(ByteBuddyAgent.getInstrumentation());
        LogCapture.install();
        JsonGenerator out = new ObjectMapper().createGenerator(System.out);
        out.setRootValueSeparator(null);
        System.setOut(System.err);
        LauncherDiscoveryRequest request =
            LauncherDiscoveryRequestBuilder.request().selectors(selectClass(arguments[0])).build();
        LauncherFactory.create().execute(request, new Recording(out));
        out.flush();
    }

    /** A test that runs, and the coordinator that it built last. */
    static final class Test {
        private final String name;
        private final JsonGenerator out;
        private Tape tape;
        private int coordinators = 0;

        private Test(String name, JsonGenerator out) {
            this.name = name;
            this.out = out;
        }

        /** What is recorded now; null before there is a coordinator. */
        Tape tape() {
            return tape;
        }

        void begin(Stage stage) {
            if (tape != null) end(null);
            coordinators++;
            tape = new Tape(stage);
            LogCapture.into(tape);
        }

        /** {@code failure}: why the test failed, which no test of Kafka does; else null. */
        private void end(String failure) {
            Recorder recorder = new Recorder(out);
            if (tape != null) tape.end(recorder);
            String number = coordinators > 1 ? "#" + coordinators : "";
            recorder.scenario(name + number, failure, tape == null ? Map.of() : tape.sessionTimeoutsMs());
            LogCapture.into(null);
            tape = null;
        }
    }

    private static final class Recording implements TestExecutionListener {
        private final JsonGenerator out;
        private Test test;

        Recording(JsonGenerator out) {
            this.out = out;
        }

        @Override
        public void executionStarted(TestIdentifier started) {
            if (!started.isTest()) return;
            SeededIds.drawFrom(new Dice(1, started.getLegacyReportingName()));
            test = new Test(started.getLegacyReportingName(), out);
            Hooks.into(test);
        }

        @Override
        public void executionFinished(TestIdentifier finished, TestExecutionResult result) {
            if (!finished.isTest()) return;
            test.end(result.getThrowable().map(Throwable::toString).orElse(null));
            Hooks.into(null);
        }
    }
}
