package oracle;

import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * What a member holds and what it should hold, partitions or tasks: it first gives up, and takes once that is known.
 */
final class Holdings<K extends Comparable<K>> {
    private Map<K, Set<Integer>> owned = new TreeMap<>();
    private Map<K, Set<Integer>> target = new TreeMap<>();
    private boolean untold = false;

    Map<K, Set<Integer>> owned() {
        return owned;
    }

    void aimAt(Map<K, Set<Integer>> wanted) {
        target = wanted;
    }

    void lose() {
        owned = new TreeMap<>();
        target = new TreeMap<>();
    }

    /** Returns whether there is something new to tell the coordinator. */
    boolean reconcile() {
        if (owned.equals(target)) return false;
        Map<K, Set<Integer>> kept = new TreeMap<>();
        boolean gaveUp = false;
        for (Map.Entry<K, Set<Integer>> each : owned.entrySet()) {
            Set<Integer> left = new TreeSet<>(each.getValue());
            gaveUp |= left.retainAll(target.getOrDefault(each.getKey(), Set.of()));
            if (!left.isEmpty()) kept.put(each.getKey(), left);
        }
        owned = gaveUp ? kept : target;
        untold = true;
        return true;
    }

    /** Returns whether what is held has changed since the last call. */
    boolean takeUntold() {
        boolean was = untold;
        untold = false;
        return was;
    }
}
