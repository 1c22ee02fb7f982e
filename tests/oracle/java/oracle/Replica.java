package oracle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.nio.ByteBuffer;
import org.apache.kafka.common.utils.Utils;

/** One broker's copy of the offsets partition. It outlives the broker's program. */
final class Replica {
    /** A record as it lies in the log; {@code value} is null in a tombstone. */
    record Entry(long offset, long timestampMs, byte[] key, byte[] value) {
    }

    private List<Entry> entries = new ArrayList<>();
    private long endOffset = 0;
    private long highWatermark = 0;

    long endOffset() {
        return endOffset;
    }

    long highWatermark() {
        return highWatermark;
    }

    List<Entry> entries() {
        return entries;
    }

    void append(long timestampMs, ByteBuffer key, ByteBuffer value) {
        entries.add(new Entry(endOffset++, timestampMs, Utils.toNullableArray(key), Utils.toNullableArray(value)));
    }

    void advance(long offset) {
        highWatermark = Math.max(highWatermark, offset);
    }

    /** Become a follower's copy of a leader: all that is committed, and the rest if it was fetched in time. */
    void follow(Replica leader, boolean tailFetched) {
        highWatermark = leader.highWatermark;
        endOffset = tailFetched ? leader.endOffset : leader.highWatermark;
        entries = new ArrayList<>(leader.entries.stream().filter(entry -> entry.offset() < endOffset).toList());
    }

    /** Keep the last record of each key, and all of the newest {@code active} records, which no cleaner touches. */
    void compact(int active) {
        long cleaned = Math.min(highWatermark, endOffset - active);
        Map<ByteBuffer, Long> last = new HashMap<>();
        for (Entry entry : entries)
            if (entry.offset() < cleaned) last.put(ByteBuffer.wrap(entry.key()), entry.offset());
        entries.removeIf(e -> e.offset() < cleaned && last.get(ByteBuffer.wrap(e.key())) != e.offset());
    }
}
