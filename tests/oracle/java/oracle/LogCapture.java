package oracle;

import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.Property;

/** Passes what Kafka's coordinators log, from INFO on, to the life that is played. */
final class LogCapture extends AbstractAppender {
    /** The receiver of lines; {@code brokerId} is 0 if the line does not name its broker. */
    @FunctionalInterface
    interface Sink {
        void log(int brokerId, LogEvent event, String message);
    }

    private static final Pattern BROKER = Pattern.compile("^\\[GroupCoordinator id=(\\d+)[ \\]].*", Pattern.DOTALL);

    private static Sink sink;

    private LogCapture() {
        super("life", null, null, false, Property.EMPTY_ARRAY);
    }

    static void install() {
        LoggerContext context = (LoggerContext) LogManager.getContext(false);
        Configuration configuration = context.getConfiguration();
        LogCapture capture = new LogCapture();
        capture.start();
        List.copyOf(configuration.getLoggers().keySet()).forEach(configuration::removeLogger); // all but the root
        configuration.getRootLogger().getAppenders().keySet().forEach(configuration.getRootLogger()::removeAppender);
        configuration.getRootLogger().addAppender(capture, null, null);
        configuration.getRootLogger().setLevel(Level.INFO);
        context.updateLoggers();
    }

    static void into(Sink next) {
        sink = next;
    }

    @Override
    public void append(LogEvent event) {
        if (sink == null || !event.getLoggerName().startsWith("org.apache.kafka.coordinator")) return;
        String message = event.getMessage().getFormattedMessage();
        if (event.getThrown() != null) message += " " + event.getThrown();
        Matcher broker = BROKER.matcher(message);
        sink.log(broker.matches() ? Integer.parseInt(broker.group(1)) : 0, event, message);
    }
}
