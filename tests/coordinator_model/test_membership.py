from coordinator_model.membership import held_by, unowned

MEMBERS = [
    {"assignment": [{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [0]}]},
    {"assignment": []},
    {},
]


def test_a_member_holds_what_its_assignment_lists():
    assert [held_by(member) for member in MEMBERS] == [[("t", 0), ("t", 1), ("u", 0)], [], []]


def test_what_no_member_holds_is_unowned_in_whichever_form_it_is_given():
    assert unowned([["t", 1], ["t", 2], ["u", 0]], MEMBERS) == {("t", 2)}
    assert unowned([("t", 1), ("t", 2)], []) == {("t", 1), ("t", 2)}
