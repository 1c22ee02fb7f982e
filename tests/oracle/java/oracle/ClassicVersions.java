package oracle;

/** The versions of the group requests that a client uses, given its version of JoinGroup. */
record ClassicVersions(short join, short sync, short heartbeat, short leave) {
    private static final short[] SYNC = {0, 0, 1, 2, 2, 3, 4, 5, 5, 5};
    private static final short[] HEARTBEAT = {0, 0, 1, 2, 2, 3, 4, 4, 4, 4};
    private static final short[] LEAVE = {0, 0, 1, 2, 2, 3, 4, 4, 5, 5};

    static ClassicVersions of(int join) {
        return new ClassicVersions((short) join, SYNC[join], HEARTBEAT[join], LEAVE[join]);
    }

    boolean knowsInstances() {
        return join >= 5;
    }

    boolean givesReasons() {
        return join >= 8;
    }
}
