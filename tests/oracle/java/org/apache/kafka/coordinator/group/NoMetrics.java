package org.apache.kafka.coordinator.group;

import com.yammer.metrics.core.MetricsRegistry;
import java.util.function.Supplier;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime.CoordinatorState;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRuntimeMetrics;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;

/** A coordinator's metrics, which nobody reads here. */
final class NoMetrics implements CoordinatorRuntimeMetrics {
    static GroupCoordinatorMetrics ofGroups() {
        return new GroupCoordinatorMetrics(new MetricsRegistry(), new Metrics());
    }

    @Override
    public void recordPartitionStateChange(CoordinatorState before, CoordinatorState after) {
    }

    @Override
    public void recordPartitionLoadSensor(long startTimeMs, long endTimeMs) {
    }

    @Override
    public void recordEventQueueTime(long durationMs) {
    }

    @Override
    public void recordEventProcessingTime(long durationMs) {
    }

    @Override
    public void recordEventPurgatoryTime(long durationMs) {
    }

    @Override
    public void recordLingerTime(long durationMs) {
    }

    @Override
    public void recordFlushTime(long durationMs) {
    }

    @Override
    public void recordThreadIdleTime(double idleTimeMs) {
    }

    @Override
    public void recordBackgroundQueueTime(long durationMs) {
    }

    @Override
    public void recordBackgroundProcessingTime(long durationMs) {
    }

    @Override
    public void recordBackgroundThreadBusyTime(double busyTimeMs) {
    }

    @Override
    public void registerEventQueueSizeGauge(Supplier<Integer> sizeSupplier) {
    }

    @Override
    public void registerBufferCacheSizeGauge(Supplier<Long> sizeSupplier) {
    }

    @Override
    public void recordBufferCacheDiscarded() {
    }

    @Override
    public void close() {
    }
}
