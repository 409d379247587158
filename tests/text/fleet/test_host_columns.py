"""Columns of hosts, and counts of their advice."""

from dataclasses import replace

from pertoken.text.fleet import advice_counts, host_use_columns
from tests.tui.reports import ADVICE, QUANTIZE, RELEASE, RICH


def test_advice_counts_for_its_deployment_and_the_host_it_runs_on() -> None:
    counts = advice_counts(ADVICE, RICH)
    assert counts.deployments == {11: 2, 13: 1}
    assert counts.hosts == {1: 2, 2: 2}


def test_advice_on_a_service_counts_once_for_a_host() -> None:
    service = replace(
        QUANTIZE, target_kind="service", target_key="meta-llama/Llama-3.1-70B-Instruct", deployment_id=None
    )
    assert advice_counts((service, RELEASE), RICH).hosts == {1: 1, 2: 1}


def test_a_stale_host_shows_its_age_which_grows_between_readings() -> None:
    first = RICH.uses[0]
    cells = {column.name: column.text for column in host_use_columns(RICH, advice_counts((), RICH), older_s=40.0)}
    assert cells["state"](first) == "stale 44s"
    fresh = {column.name: column.text for column in host_use_columns(RICH, advice_counts((), RICH))}
    assert fresh["state"](first) == ""
    assert (fresh["SM"](first), fresh["mem BW"](first), fresh["advice"](first)) == ("62%", "71%", "")
