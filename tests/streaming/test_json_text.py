"""JSON of outputs and rows: what is read is what was written, as the standard library would have it."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_model.states import Severity
from streaming import json_text

TEXTS = st.text(st.characters())  # lone surrogates too
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)


@given(VALUES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # for busy machines
def test_what_is_written_is_read_back(value):
    text = json_text.dumps(value)
    assert json_text.loads(text) == json.loads(text) == json.loads(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["\ud800", "client\udfff", "\U0001f600", "\x00", '"\\', "é"])
def test_any_text_of_a_client_is_kept(text):
    assert json_text.loads(json_text.dumps({text: [text]})) == {text: [text]}
    assert json_text.loads(json.dumps(text)) == text


def test_tuples_and_enums_become_lists_and_text():
    assert json_text.dumps({"places": (("orders", 1),), "severity": Severity.INFO}) == (
        '{"places":[["orders",1]],"severity":"info"}'
    )


@pytest.mark.parametrize("text", ["", "[1,", "{'a': 1}"])
def test_text_that_is_not_json_is_an_error(text):
    with pytest.raises(ValueError):
        json_text.loads(text)
