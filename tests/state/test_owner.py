import pytest

from pertoken.settings.owners import BASES
from pertoken.state.deployment import bases_of, changed_owner, is_owner_knob, owner_of

POD = {"workload": "Deployment prod/chat", "label:team": "search", "max_num_seqs": 8}
JOB = {"job": "4711", "job:user": "ann", "job:account": "nlp", "job:partition": "h100", "slice": "ml.slice"}


@pytest.mark.parametrize(
    ("knobs", "owners"),
    [
        (POD, {"namespace": "prod", "workload": "prod/chat", "label:team": "search"}),
        ({"workload": "? prod/?"}, {"namespace": "prod"}),
        (JOB, {basis: JOB[basis] for basis in BASES if basis in JOB}),
        ({"job": "", "workload": "no object"}, {}),
    ],
)
def test_an_owner_is_known_by_the_bases_that_its_deployment_has(
    knobs: dict[str, object], owners: dict[str, str]
) -> None:
    known = {basis: owner_of(knobs, basis) for basis in (*BASES, "label:team")}
    assert {basis: owner for basis, owner in known.items() if owner} == owners
    assert set(bases_of([knobs])) == set(owners)


def test_an_owner_that_is_not_known_has_not_changed() -> None:
    assert not changed_owner(POD, {**POD, "max_num_seqs": 4})
    assert not changed_owner(POD, {}) and not changed_owner({}, JOB)
    assert not changed_owner(POD, {"workload": "? prod/?"})
    assert changed_owner(POD, {"workload": "? dev/?"})
    assert changed_owner(POD, {**POD, "label:team": "ads"})
    assert changed_owner(JOB, {**JOB, "job": "4712"})


def test_only_words_of_owners_are_no_settings_of_an_engine() -> None:
    assert all(map(is_owner_knob, [*JOB, "workload", "label:team"]))
    assert not any(map(is_owner_knob, ["max_num_seqs", "driver_version", "labels"]))
