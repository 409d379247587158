"""Pages that nobody meant: real ones with damaged bytes, and text at random. Read, or refused; nothing else."""

import random
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.agent import scrape
from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import Adapter
from pertoken.agent.readings import EngineReading
from pertoken.agent.scrape import MAX_VALUE, PageError, parse
from tests.agent.engine_pages import read_page
from tests.examples import examples

CAPTURES = Path(__file__).parents[2] / "captures"
PAGES = sorted(path.name for path in CAPTURES.glob("*.prom"))
DAMAGED = 60
"""Damaged copies of each captured page: bounded, so that the tests stay quick."""
NAMES = (b"vllm:prompt_tokens_total", b"vllm:time_to_first_token_seconds_bucket", b"llamacpp:tokens_predicted_total")
BRACES = (b"", b'{engine="0"}', b'{le="+Inf"}', b'{le="1"}', b'{le="NaN"}', b'{le="1",le="1"}')
VALUES = (b"1", b"0", b"-1", b"1e999", b"1e18", b"1e19", b"NaN", b"+Inf", b"0x10", b"1_0")
PIECES = [
    *NAMES,
    *(b"{", b"}", b'"', b"\\", b"\\n", b",", b"=", b" ", b"\t", b"\n", b"\r\n", b"#", b"# EOF\n", b'{engine="0"}'),
    *(b'{le="+Inf"}', b'{le="NaN"}', b'{le="1_0"}', b"1", b"-1", b"1e999", b"1e18", b"NaN", b"+Inf", b"0x10", b"\xff"),
]


def adapter_of(name: str) -> Adapter:
    return ADAPTERS["vllm" if name.startswith("vllm") else "llama.cpp"]


def read(body: bytes, adapter: Adapter, eof_required: bool = False) -> EngineReading | None:
    """Return what is taken of a page; None if it is refused. Whatever is taken can be stored."""
    try:
        page = parse(body, adapter.wanted, eof_required=eof_required)
        values, histograms = read_page(adapter, page), adapter.histograms_of(page)
    except PageError as error:
        assert len(str(error)) < 2000
        return None
    assert all(isinstance(count, int) and 0 <= count <= MAX_VALUE for count in values.counters.values())
    assert all(0 <= value <= MAX_VALUE * 10 for value in values.gauges.values())
    for histogram in histograms.values():
        assert len(histogram.counts) == len(histogram.upper_bounds) + 1
        assert list(histogram.upper_bounds) == sorted(set(histogram.upper_bounds))
        assert all(count >= 0 for count in histogram.counts)
    return values


@pytest.mark.parametrize("name", PAGES)
def test_a_captured_page_with_damaged_bytes_is_read_or_refused(name: str) -> None:
    body, adapter, chance = (CAPTURES / name).read_bytes(), adapter_of(name), random.Random(name)
    assert read(body, adapter) is not None
    for _ in range(DAMAGED):
        damaged = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(damaged))
            match chance.randrange(4):
                case 0:
                    damaged[at] ^= 1 << chance.randrange(8)
                case 1:
                    del damaged[at : at + chance.randint(1, 200)]
                case 2:
                    damaged[at:at] = chance.choice(PIECES)
                case _:
                    other = chance.randrange(len(damaged))
                    damaged[at:at] = damaged[other : other + chance.randint(1, 400)]
        read(bytes(damaged), adapter)


@pytest.mark.parametrize("name", PAGES)
def test_a_captured_page_cut_anywhere_within_a_line_is_refused(name: str) -> None:
    body, adapter, chance = (CAPTURES / name).read_bytes(), adapter_of(name), random.Random(name)
    for _ in range(DAMAGED):
        cut = body[: chance.randrange(1, len(body))]
        if not cut.endswith(b"\n"):
            assert read(cut, adapter) is None


lines = st.tuples(st.sampled_from(NAMES), st.sampled_from(BRACES), st.sampled_from(VALUES))
bodies = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join),
    st.lists(lines, max_size=8).map(lambda item: b"".join(b"%s%s %s\n" % line for line in item)),
)


@settings(max_examples=examples(300), deadline=None)
@given(body=bodies, eof_required=st.booleans())
def test_bytes_at_random_are_read_or_refused(body: bytes, eof_required: bool) -> None:
    for adapter in ADAPTERS.values():
        read(body, adapter, eof_required)
        read(body + b"\n", adapter, eof_required)


@pytest.mark.parametrize("name", NAMES)
def test_every_spelling_of_a_line_is_read_or_refused(name: bytes) -> None:
    for braces, value in product(BRACES, VALUES):
        for adapter in ADAPTERS.values():
            read(b"%s%s %s\n" % (name, braces, value), adapter)


def test_a_line_made_to_be_slow_costs_no_more_than_its_length() -> None:
    for line in (b'a{x="' + b"\\" * 200_000, b"a{" + b'b="c",' * 50_000, b"a " + b"9" * 400_000 + b"x", b"{" * 300_000):
        assert read(line + b"\n", ADAPTERS["vllm"]) is None


FAULTS = {
    "numbers are not checked": ("_PLAIN_NUMBER", lambda text: True),
    "a count may be anything": ("_counts", lambda name, values: [int(x) if abs(x) < 1e300 else -1 for x in values]),
    "labels are not checked": ("_labels", lambda braces: ()),
    "a cut page is taken for whole": ("parse", lambda body, wanted, **more: scrape.parse(body + b"\n", wanted, **more)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_put_into_the_parser_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong = FAULTS[fault]
    where = "tests.agent.scrape.test_page_fuzz" if name == "parse" else "pertoken.agent.scrape"
    monkeypatch.setattr(f"{where}.{name}", wrong)

    def fuzzed() -> None:
        for capture in ("vllm-0.32.0-metrics-after.prom", "llamacpp-metrics-after.prom"):
            test_a_captured_page_with_damaged_bytes_is_read_or_refused(capture)
            test_a_captured_page_cut_anywhere_within_a_line_is_refused(capture)
        # Not by a search at random: whether that finds a fault is chance.
        for name in NAMES:
            test_every_spelling_of_a_line_is_read_or_refused(name)

    with pytest.raises((AssertionError, ValueError)):
        fuzzed()
