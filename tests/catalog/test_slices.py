import csv
from datetime import date
from importlib.resources import files

from pertoken.catalog.instances import fit_together, slices
from pertoken.catalog.market import load_market
from tests.deployments import model

MARKET = load_market()


def test_every_row_names_its_source_and_date() -> None:
    with files("pertoken.catalog").joinpath("slices.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            assert row["source"].strip() and date.fromisoformat(row["as_of"]) >= date(2026, 1, 1)


def test_slices_are_of_devices_that_the_catalog_knows() -> None:
    names = [accelerator.name for accelerator in MARKET.accelerators if slices(accelerator.name)]
    assert {"A30", "A100 80GB SXM4", "H100 SXM5", "H200 SXM", "B200 SXM"} <= set(names)
    assert slices("L4") == ()


def test_a_device_holds_slices_up_to_all_of_its_compute_and_memory() -> None:
    of = {profile.profile: profile for profile in slices("H100 SXM5")}
    assert fit_together([of["3g.40gb"], of["3g.40gb"]])
    assert not fit_together([of["3g.40gb"]] * 2 + [of["1g.10gb"]])


def test_a_model_gets_the_smallest_slice_of_which_its_weights_take_half() -> None:
    h100, l4 = MARKET.accelerator("H100 SXM5"), MARKET.accelerator("L4")
    assert h100 is not None and l4 is not None
    small, large = (model("Qwen3-1.7B"), "bf16"), (model("Llama-3.1-8B"), "bf16")
    assert MARKET.slices_for(h100, small, large) == ("1g.10gb", "3g.40gb")
    assert MARKET.slices_for(h100, large, large, large) is None
    assert MARKET.slices_for(h100, (model("Llama-3.3-70B"), "bf16")) is None
    assert MARKET.slices_for(h100, (model("Qwen3-1.7B"), None)) is None
    assert MARKET.slices_for(l4, small) is None
