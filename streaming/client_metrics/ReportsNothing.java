package kafkagroupmonitor;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;

/** A metrics reporter that reports none of the broker's own metrics: only such a class may accept pushes. */
abstract class ReportsNothing implements MetricsReporter {
    @Override
    public void configure(Map<String, ?> settings) {}

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}
}
