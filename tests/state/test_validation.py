"""A proposed fleet is valid where edits of the present one produce it, with possible values."""

from dataclasses import replace

import pytest

from pertoken.state.deployment import InvalidEdit, Model
from pertoken.state.diff import diff
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo, times
from pertoken.state.validation import as_edited, validate
from tests.advisor.hostile import FLEET, NOW, SERVICE


def refuse(proposed: Fleet, listed_models: dict[str, Model | None] | None = None) -> None:
    validate(FLEET, proposed, diff(FLEET, proposed), listed_models or {})


def test_an_edit_is_valid() -> None:
    refuse(FLEET.edit(NOW.but(tp=NOW.tp, max_num_seqs=8)))


def test_a_setting_is_no_edit() -> None:
    with pytest.raises(InvalidEdit, match="are settings: a rule cannot change them"):
        refuse(FLEET.edit(replace(SERVICE, slo=Slo(ttft_p95_ms=1e9))))


def test_a_model_has_the_shape_that_the_catalog_lists() -> None:
    proposed = FLEET.edit(NOW.but(model=replace(NOW.model, name="listed", n_layers=3)))
    refuse(proposed, {"listed": None})
    with pytest.raises(InvalidEdit, match="listed has another shape than in the fleet or the catalog"):
        refuse(proposed, {"listed": replace(NOW.model, name="listed", n_layers=4)})


def test_a_supplied_number_counts_only_where_it_may_be_confirmed() -> None:
    claimed: Service = SERVICE.serving(requests_per_s=times(0.5, confirmed=True))
    for confirmed in (False, True):
        requests = as_edited(FLEET, claimed, confirmed=confirmed).service("chat").demand.requests_per_s
        assert requests is not None and requests.confirmed is confirmed
