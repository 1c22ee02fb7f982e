"""A report becomes JSON and comes back; what is no report is refused where it is read."""

import json
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_model.group_report import (
    FINDING_FIELDS,
    BadReportError,
    GroupReport,
    JudgedBy,
    instant_ms,
    of_kind,
    place_of,
    read_outputs,
    reports_in,
)
from coordinator_model.rules.findings import Finding

REPORT = GroupReport(cluster="c", shard=7, seq=2, group="g", at_ms=9)
FINDING = dict.fromkeys(FINDING_FIELDS)
INSTANTS = st.integers(0, 2**53)
TEXT = st.text(max_size=4)
SCALARS = st.none() | st.booleans() | INSTANTS | TEXT
JSON = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(TEXT, SCALARS, max_size=2)
VIEWS = st.fixed_dictionaries({"type": TEXT, "members": st.lists(JSON, max_size=2)})
REPORTS = st.builds(
    GroupReport,
    cluster=TEXT,
    shard=st.integers(-1, 2**31),
    seq=INSTANTS,
    group=TEXT,
    at_ms=INSTANTS,
    view=st.none() | VIEWS,
    findings=st.lists(st.builds(lambda told: FINDING | {"detail": told}, JSON), max_size=2),
    deleted=st.booleans(),
    judged=st.sampled_from(JudgedBy),
    pending=st.none() | st.lists(st.tuples(TEXT, TEXT, INSTANTS), max_size=3),
    owners=st.none() | st.lists(TEXT, max_size=3),
    holder=TEXT,
    reason=st.none() | TEXT,
)


@settings(deadline=None)
@given(REPORTS)
def test_a_report_is_the_same_after_its_journey_as_json(report):
    assert GroupReport.of_output(json.loads(json.dumps(report.as_output()))) == report
    assert GroupReport.of_output(report.as_output()) == report


def test_a_report_has_the_fields_of_every_finding():
    assert {"cluster", *(f.name for f in fields(Finding))} == FINDING_FIELDS


BAD = {
    "shard": "7",
    "seq": None,
    "at_ms": True,
    "group": None,
    "view": {"members": {}},
    "findings": [FINDING, "one"],
    "deleted": 0,
    "judged": "serve",
    "pending": [["partition-stalled", "t-0"]],
    "owners": ["m1", None],
    "holder": 7,
    "reason": [],
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_report_is_refused_and_the_error_names_the_field(name):
    with pytest.raises(BadReportError, match=f"not a report .*: {name} "):
        read_outputs([{"kind": "progress"}, REPORT.as_output() | {name: BAD[name]}])


@pytest.mark.parametrize("name", ["cluster", "group", "at_ms", "findings", "deleted"])
def test_a_report_without_a_field_that_it_needs_is_refused(name):
    output = REPORT.as_output()
    del output[name]
    with pytest.raises(BadReportError, match=f"{name} is missing"):
        GroupReport.of_output(output)


def test_a_finding_of_an_older_release_is_refused_by_what_it_lacks():
    output = REPORT.as_output() | {"findings": [{k: v for k, v in FINDING.items() if k != "client_software"}]}
    with pytest.raises(BadReportError, match="findings holds one without client_software"):
        GroupReport.of_output(output)


def test_an_error_repeats_only_the_beginning_of_a_strangers_name():
    with pytest.raises(BadReportError) as refused:
        GroupReport.of_output(REPORT.as_output() | {"group": "g" * 10_000, "deleted": None})
    assert len(str(refused.value)) < 200


@settings(deadline=None)
@given(st.sampled_from([f.name for f in fields(GroupReport)]), JSON)
def test_whatever_comes_is_a_report_that_can_be_sent_on_or_is_refused(name, value):
    try:
        report = GroupReport.of_output(REPORT.as_output() | {name: value})
    except BadReportError:
        return
    assert GroupReport.of_output(report.as_output()) == report


def test_other_outputs_stay_as_they_are_and_in_their_place():
    others = [{"kind": "progress", "shard": 3, "seq": 1, "at_ms": 5}, {"kind": "decoded"}]
    said = read_outputs([others[0], REPORT.as_output(), others[1]])
    assert said == [others[0], REPORT, others[1]]
    assert (list(reports_in(said)), list(of_kind(said, "decoded"))) == ([REPORT], [others[1]])
    assert [place_of(each) for each in said] == [(3, 1), (7, 2), (-1, 0)]
    assert [instant_ms(each) for each in said] == [5, 9, 0]
