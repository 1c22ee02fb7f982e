"""Which member is which client: the table of what tells."""

import pytest

from coordinator_model.client import ShownClient, is_same_client, lasting_name, names_of, who

GONE = ShownClient("m-1", None, "app", "10.0.0.1", "c-1")
STATIC = GONE._replace(instance_id="i-1")
NEW = ShownClient("m-2", None, "app", "10.0.0.1", "c-2")

CASES = {
    "its client id on its host": (GONE, NEW, True),
    "the same client id on another host": (GONE, NEW._replace(client_host="10.0.0.2"), False),
    "no client id": (GONE._replace(client_id=""), NEW._replace(client_id=""), False),
    "another instance": (STATIC, STATIC._replace(instance_id="i-2"), False),
    "the same instance anywhere": (STATIC, ShownClient("m-2", "i-1", "b", "10.0.0.9", None), True),
    "a static member is no dynamic one": (STATIC, GONE, False),
}


@pytest.mark.parametrize("case", CASES)
def test_who_is_the_same_client_where_nobody_looks_like_it(case):
    one, other, same = CASES[case]
    assert is_same_client(one, other, alone=True) is same
    assert is_same_client(other, one, alone=True) is same


def test_where_others_look_like_it_only_member_id_and_connection_tell():
    assert not is_same_client(GONE, NEW, alone=False)
    assert is_same_client(GONE, NEW._replace(connection="c-1"), alone=False)
    assert is_same_client(GONE, NEW._replace(member_id="m-1"), alone=False)


def test_two_unknown_connections_are_not_the_same():
    one, other = GONE._replace(connection=None), NEW._replace(connection=None)
    assert not is_same_client(one, other, alone=False)


def test_a_client_keeps_one_name_as_it_restarts():
    assert lasting_name(GONE) == lasting_name(NEW) == ("app", "10.0.0.1")
    assert lasting_name(STATIC) == ("i-1", "")
    assert (who(GONE), who(STATIC)) == ("app\n10.0.0.1", "i-1")


def test_a_static_member_is_known_by_its_instance_only():
    assert names_of(STATIC) == {("instance", "i-1")}
