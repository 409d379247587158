import math
import tomllib
from dataclasses import astuple
from importlib.resources import files

import pytest

from pertoken.forecast.efficiency import efficiencies, kv_bytes_per_value, weight_format, width

TABLE = tomllib.loads(files("pertoken.forecast").joinpath("efficiency.toml").read_text(encoding="utf-8"))


def test_every_constant_and_format_names_its_source() -> None:
    for section in ("constants", "weights"):
        assert all(row["source"] for row in TABLE[section].values())
    for section in ("fit", "assumed"):
        assert TABLE[section]["source"] and TABLE[section]["as_of"]


def test_the_ends_of_every_constant_are_around_its_likely_value() -> None:
    low, likely, high = (astuple(each) for each in efficiencies())
    for least, middle, most in zip(low, likely, high, strict=True):
        assert least < middle < most or least > middle > most


def test_fewer_bits_are_fewer_bytes() -> None:
    sizes = [weight_format(dtype) for dtype in ("bf16", "fp8", "int4")]
    bytes_each = [each.bytes_per_param for each in sizes if each is not None]
    assert bytes_each == sorted(bytes_each, reverse=True) and len(bytes_each) == 3


def test_an_unknown_format_is_none_and_an_unseen_cache_dtype_is_16_bit() -> None:
    assert weight_format("int3") is None
    assert (kv_bytes_per_value(None), kv_bytes_per_value("fp8"), kv_bytes_per_value("fp5")) == (2, 1, None)


def test_errors_of_two_kinds_add_in_quadrature_and_none_is_below_the_noise() -> None:
    assert width([]) == 0
    assert width(["parallelism"]) == 0.19
    assert width(["parallelism", "quantize_fp8"]) == pytest.approx(math.hypot(0.19, 0.208))
    with pytest.raises(KeyError):
        width(["astrology"])


def test_the_measured_errors_say_on_how_many_pairs() -> None:
    kinds = {name: row for name, row in TABLE["error"].items() if name != "noise_floor"}
    assert all(row["n"] >= 40 and 0 < row["p80_abs_log"] < 1 for row in kinds.values())
