"""Devices that a selector names."""

import pytest

from pertoken.costs.prices.book import Price, PriceBook, PriceSubject, formerly

NAMES = {
    "H100": "NVIDIA H100 80GB HBM3",
    "H100 PCIe": "NVIDIA H100 PCIe",
    "H200": "NVIDIA H200",
    "GH200": "NVIDIA GH200 480GB",
    "A10": "NVIDIA A10",
    "A100": "NVIDIA A100-SXM4-80GB",
    "A100X": "NVIDIA A100X",
    "L4": "NVIDIA L4",
    "L40S": "NVIDIA L40S",
    "RTX PRO": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "MI300X": "AMD Instinct MI300X OAM",
}


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        ("H100", {"H100", "H100 PCIe"}),
        (" h100 ", {"H100", "H100 PCIe"}),
        ("H100 PCIe", {"H100 PCIe"}),
        ("h100-pcie", {"H100 PCIe"}),
        ("H100_SXM5", {"H100"}),
        ("NVIDIA H100 80GB HBM3", {"H100"}),
        ("H10", set()),
        ("100", set()),
        ("H20", set()),
        ("H200", {"H200"}),
        ("A10", {"A10"}),
        ("A100", {"A100"}),
        ("A100 80GB", {"A100"}),
        ("L4", {"L4"}),
        ("L40", set()),
        ("RTX 6000", set()),
        ("mi300x", {"MI300X"}),
        ("NVIDIA", set(NAMES) - {"MI300X"}),
        ("gpu", set(NAMES)),
        ("GPU", set(NAMES)),
        ("cpu", set()),
        ("", set()),
        (" - ", set()),
        ("GPU-H200", {"H200"}),
        ("gpu-h200", {"H200"}),
        ("GPU-H20", set()),
    ],
)
def test_names_match_by_whole_words_and_uuids_exactly(selector: str, named: set[str]) -> None:
    devices = {key: PriceSubject("gpu", name, f"GPU-{key}") for key, name in NAMES.items()}
    book = PriceBook([Price(selector, 1, 0)])
    assert {key for key, device in devices.items() if book.at(device, 0)} == named


def test_matches_by_a_part_of_a_name_are_known_losses() -> None:
    l40s, cpu = PriceSubject("gpu", "NVIDIA L40S", "GPU-9"), PriceSubject("cpu", "Intel(R) Xeon(R) Gold", "cpu:9")
    assert formerly("L4", l40s) and formerly("", l40s) and formerly("40S", l40s) and formerly("on", cpu)
    assert not formerly("L40S", l40s) and not formerly("gpu", l40s) and not formerly("H100", l40s)
    assert not formerly("Xeon(R)", cpu) and not formerly("cpu", PriceSubject("cpu", "AMD CPU", "x"))
