from coordinator_model.membership import held_by, partitions_of, unowned

MEMBERS = [
    {"assignment": [{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [0]}]},
    {"assignment": []},
    {},
]


def test_a_member_holds_what_its_assignment_lists():
    assert [held_by(member) for member in MEMBERS] == [[("t", 0), ("t", 1), ("u", 0)], [], []]


def test_what_no_member_holds_is_unowned():
    held = [place for member in MEMBERS for place in held_by(member)]
    assert unowned([("u", 0), ("t", 2), ("t", 1)], held) == [("t", 2)]
    assert unowned([("t", 2), ("t", 1)], []) == [("t", 1), ("t", 2)]


def test_the_partitions_of_an_assignment_are_pairs():
    assert partitions_of({"t": [0, 1], "u": range(1)}) == [("t", 0), ("t", 1), ("u", 0)]
