"""Tiers of forecasts, and the errors that results of benchmarks give them."""

from dataclasses import replace

import pytest

from benchmarks.forecast.figures import UNSEEN
from pertoken.forecast.calibration import MAX_SURPRISE
from pertoken.forecast.host import Calibration, tier_of
from pertoken.forecast.tiers import split_tier, tiers
from pertoken.state.deployment import Deployment, Placement
from tests.forecast.builders import LLAMA_8B, MARKET
from tools.docs.figures import RESULTS, newest, read_result
from tools.docs.forecast import CPUS, POINTS, PROBES

UNCOVERED = LLAMA_8B.on(Placement(accelerator="A100 80GB SXM4")).but(weight_dtype="fp8")
MINUTES = Calibration(origin=LLAMA_8B, minutes=10)
PROBED = Calibration(origin=LLAMA_8B, probed=5)


@pytest.mark.parametrize(
    ("to", "calibration", "name"),
    [
        (LLAMA_8B, MINUTES, "measured"),
        (LLAMA_8B.but(max_num_seqs=64), MINUTES, "measured"),
        (LLAMA_8B.but(weight_dtype="fp8"), MINUTES, "stated"),
        (LLAMA_8B, PROBED, "probed"),
        (LLAMA_8B, Calibration(), "stated"),
        (UNCOVERED, Calibration(), "physics"),
        (UNCOVERED, MINUTES, "physics"),
    ],
)
def test_a_tier_follows_from_what_was_measured_here_and_what_public_sources_cover(
    to: Deployment, calibration: Calibration, name: str
) -> None:
    assert tier_of(to, calibration, MARKET) == tiers()[name]


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_surprise_demotes_a_measured_host_to_physics(sign: int) -> None:
    usual, odd = (replace(MINUTES, log_time=sign * share * MAX_SURPRISE) for share in (0.99, 1.01))
    assert tier_of(LLAMA_8B, usual, MARKET) == tiers()["measured"]
    assert tier_of(LLAMA_8B, odd, MARKET) == tiers()["physics"]


def test_only_tiers_that_rest_on_public_data_name_a_command_that_lifts_them() -> None:
    assert {key for key, tier in tiers().items() if tier.lifted_by} == {"stated", "cpus", "physics"}
    assert "`pertoken probe`" in tiers()["stated"].words and "probe`" not in tiers()["measured"].words


def test_the_error_of_each_tier_is_that_of_the_newest_result() -> None:
    unseen, passive = newest("forecast")[1], newest("calibrate_with")[1]
    site, cpus = read_result(RESULTS / PROBES), read_result(RESULTS / CPUS)
    measured = {
        "measured": [passive[f"{POINTS} points", f"load.{figure}"] for figure in ("median", "p90")],
        "probed": [site["target", f"site.load_{figure}"] for figure in ("median", "p90")],
        "stated": [unseen[f"{UNSEEN}, stated", f"macro.{figure}"] for figure in ("median", "p90")],
        "cpus": [cpus["pertoken", f"rates {figure}"] for figure in ("median", "p90")],
        "physics": [unseen[f"{UNSEEN}, physics only", f"macro.{figure}"] for figure in ("median", "p90")],
    }
    for key, tier in tiers().items():
        assert [tier.median, tier.p90] == pytest.approx(measured[key], abs=6e-4), key


def test_of_several_forecasts_the_weakest_tier_counts_and_other_assumptions_stay() -> None:
    lines = (tiers()["stated"].assumption, "the list price is paid", tiers()["physics"].assumption)
    assert split_tier(lines) == (tiers()["physics"], ("the list price is paid",))
    assert split_tier(("the list price is paid",)) == (None, ("the list price is paid",))
