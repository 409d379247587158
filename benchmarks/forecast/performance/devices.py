"""Accelerators behind the device names that public measurements use."""

import csv
import itertools
import re
from datetime import date
from functools import cache
from pathlib import Path

from benchmarks.forecast.performance.cells import names, number
from pertoken.catalog.market import MIB, Accelerator, load_market

DATA = Path(__file__).parents[2] / "data"
UNKNOWN = {
    r"xeon|epyc|core|cpu|neoverse|graviton|ryzen": "Unknown CPU",
    r"apple|metal": "Unknown Apple GPU",
    "": "Unknown device",
}
"""Regular expression on a name in lower case to the row of `data/devices.csv` that stands in for a device nobody knows;
the first match counts."""


@cache
def extra_devices() -> dict[str, Accelerator]:
    """Devices that public measurements name and the catalog does not list, by name."""
    with (DATA / "devices.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    devices = {}
    for row in rows:
        rate = {key: number(row[key]) for key in row if key.endswith(("_tflops", "_tops", "_gb_s"))}
        devices[row["name"]] = Accelerator(
            name=row["name"],
            reported_names=(),
            vendor="",
            arch=row["arch"],
            compute_capability=None,
            memory_bytes=int(row["memory_reported_mib"]) * MIB,
            memory_bytes_per_s=(rate["memory_bw_gb_s"] or 0) * 1e9,
            fp16_flops=(rate["fp16_tflops"] or 0) * 1e12,
            fp8_flops=rate["fp8_tflops"] * 1e12 if rate["fp8_tflops"] else None,
            int8_flops=rate["int8_tops"] * 1e12 if rate["int8_tops"] else None,
            fp4_flops=rate["fp4_tflops"] * 1e12 if rate["fp4_tflops"] else None,
            tdp_w=None,
            interconnect=row["interconnect"],
            interconnect_bytes_per_s=rate["interconnect_gb_s"] * 1e9 if rate["interconnect_gb_s"] else None,
            source=row["source"],
            as_of=date(2026, 11, 21),
            confidence="medium",
        )
    return devices


@cache
def device(name: str) -> Accelerator | None:
    """Return the accelerator a public measurement means by this name: the catalog's with the most words in common."""
    wanted = name.replace("?", "").strip()
    market = load_market()
    called = names()["devices"].get(wanted)
    exact = market.accelerator(wanted) or market.accelerator(called) or extra_devices().get(called)
    if exact is not None:
        return exact
    words = _words(wanted)
    best: tuple[float, Accelerator] | None = None
    for accelerator in (*extra_devices().values(), *market.accelerators):
        theirs = _words(accelerator.name)
        # What sets a device apart is its model number; a name without one in common is another device.
        if accelerator.name in UNKNOWN.values() or not _distinctive(accelerator.name) & (words | _joined(words)):
            continue
        likeness = len(theirs & (words | _joined(words))) - 0.4 * len(theirs - words - _joined(words))
        likeness += 0.05 * (
            ("sxm" in accelerator.name.lower()) - ("nvl" in accelerator.name.lower() and "72" not in accelerator.name)
        )
        if best is None or likeness > best[0]:
            best = (likeness, accelerator)
    return best[1] if best else None


def stand_in(name: str) -> Accelerator:
    """Return an assumed accelerator for an unknown device."""
    return next(
        extra_devices()[catalog_name] for pattern, catalog_name in UNKNOWN.items() if re.search(pattern, name.lower())
    )


def _ordered(name: str) -> list[str]:
    words = re.split(r"[\s_\-/()+]+", name.lower())
    return [re.sub(r"^(\d+)g$", r"\1gb", re.sub(r"^sxm\d*$", "sxm", word)) for word in words if word]


def _words(name: str) -> set[str]:
    words = _ordered(name)
    # "Gaudi2" and "Gaudi 2", "RTX3090" and "RTX 3090" are one device.
    pairs = {first + second for first, second in itertools.pairwise(words)}
    return set(words) | pairs


def _distinctive(name: str) -> set[str]:
    """Return spellings of the word that identifies a device: its first with a digit, alone or after the previous
    one."""
    words = _ordered(name)
    place = next((place for place, word in enumerate(words) if re.search(r"\d", word)), len(words) - 1)
    joined = {words[place - 1] + words[place]} if place else set()
    return joined if words[place].isdigit() and len(words[place]) < 2 else {words[place], *joined}


def _joined(words: set[str]) -> set[str]:
    return {word.removeprefix(prefix) for word in words for prefix in ("rtx", "nvidia", "amd") if word != prefix}
