import contextlib
import re
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.scrape import PageError, Parser, parse

LINES = (
    *("# HELP a 1", "# EOF", "", " ", "a 1", "a 2", "a 1 1700000000", "a 1 1700000001", "b 1", "c 1", "c 2", "c", "a "),
    *('a{x="1"} 1', 'a{x="1"} 2', 'a{x="1"} 2 # {} 1', 'a{x="1"}2', 'b{x="1} 1', 'c{x="1"} NaN', "b +Inf", "b 1_0"),
)
"""Lines of pages that follow each other: well-formed and not, wanted and not, with timestamps and exemplars."""


def test_only_wanted_series_are_read_by_their_exact_names() -> None:
    page = parse(
        b"# HELP a_total tokens\n# TYPE a_total counter\na_total 5\na_created 1.79e9\na_total_sum 7\n", {"a_total"}
    )
    assert page.samples == {"a_total": {(): 5.0}}


def test_labels_escapes_timestamps_exponents_and_blanks_are_understood() -> None:
    page = parse(
        b'a{engine="0",x="quote \\" slash \\\\ line\\n brace } ",} 1.5e+03 1795239171000\n'
        b'  a { engine = "1" }\t2\n'
        b"a{} 3\n\n",
        {"a"},
    )
    assert page.samples["a"] == {
        (("engine", "0"), ("x", 'quote " slash \\ line\n brace } ')): 1500.0,
        (("engine", "1"),): 2.0,
        (): 3.0,
    }


def test_text_format_1_0_may_quote_names() -> None:
    page = parse(b'{"a",b="c"} 1\n{"other.name","d.e"="f"} 2\na{"d.e"="f"} 3\n', {"a"})
    assert page.samples["a"] == {(("b", "c"),): 1.0, (("d.e", "f"),): 3.0}


def test_openmetrics_exemplars_pass_and_its_end_is_demanded() -> None:
    body = b'a_bucket{le="1.0"} 4 # {trace_id="x"} 0.5 1.7e9\n# EOF\n'
    assert parse(body, {"a_bucket"}, eof_required=True).samples["a_bucket"] == {(("le", "1.0"),): 4.0}
    with pytest.raises(PageError, match="ends before its end"):
        parse(b"a 1\n", {"a"}, eof_required=True)
    with pytest.raises(PageError, match="line 2: text after # EOF"):
        parse(b"# EOF\na 1\n", {"a"}, eof_required=True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"a 1", "line 1: the page ends within a line"),
        (b"a 1\n# TYPE b cou", "line 2: the page ends before its end"),
        (b'a{engine="0',  "line 1: the page ends within a line"),
        (b'a{engine="0\n', "line 1: not a sample"),
        (b"a 1\n<html>\n", "line 2: not a sample"),
        (b"b 1_0\n", "line 1: not a sample"),
        (b"a\n", "line 1: not a sample"),
        (b"a1\n", "line 1: not a sample"),
        (b"{} 1\n", "line 1: a sample without a name"),
        (b'a{b=c} 1\n', "line 1: bad labels"),
        (b'a{b="1",b="2"} 1\n', "line 1: bad labels"),
        (b"a 1\na 2\n", "line 2: a is given twice with these labels, as 1 and 2"),
        (b"a \xff\n", "byte 2 is not UTF-8"),
    ],
)  # fmt: skip
def test_a_page_that_is_not_whole_and_well_formed_is_refused_with_its_line(body: bytes, message: str) -> None:
    with pytest.raises(PageError, match=message):
        parse(body, {"a"})


def test_a_series_repeated_with_the_same_value_is_one_series() -> None:
    assert parse(b"a 1\na 1.0\n", {"a"}).counter("a") == {(): 1}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e19"])
def test_a_value_no_counter_can_have_refuses_the_page(value: str) -> None:
    page = parse(f'a{{engine="0"}} 5\na{{engine="1"}} {value}\n'.encode(), {"a"})
    with pytest.raises(PageError, match="which a counter cannot be"):
        page.counter("a")


def test_a_gauge_without_a_finite_value_is_left_out() -> None:
    page = parse(b'g{engine="0"} NaN\ng{engine="1"} 0.5\ng{engine="2"} +Inf\ng{engine="3"} 1e30\n', {"g"})
    assert page.gauge("g") == {(("engine", "1"),): 0.5}


def test_buckets_are_sorted_whatever_their_order_and_spelling() -> None:
    page = parse(b'h_bucket{le="+Inf"} 9\nh_bucket{le="1"} 4\nh_bucket{le="0.5"} 1\n', {"h_bucket"})
    assert page.histogram("h") == {(): ((0.5, 1.0), (1, 3, 5))}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'h_bucket{le="1"} 4\n', "no \\+Inf bucket"),
        (b'h_bucket{le="1"} 4\nh_bucket{le="+Inf"} 3\n', "cumulative counts fall"),
        (b'h_bucket{le="1"} 4\nh_bucket{le="1.0"} 3\nh_bucket{le="+Inf"} 4\n', "two counts for le=1.0"),
        (b'h_bucket{le="+Inf"} 4\nh_bucket{le="Inf"} 3\n', "two counts for le=inf"),
        (b'h_bucket{le="NaN"} 4\n', "without a numeric le"),
        (b"h_bucket 4\n", "without a numeric le"),
    ],
)
def test_a_set_of_buckets_that_cannot_be_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(PageError, match=message):
        parse(body, {"h_bucket"}).histogram("h")


names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True)
labels = st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4)
values = st.one_of(st.floats(allow_nan=False), st.integers(0, 2**53).map(float))


@given(series=st.dictionaries(labels.map(lambda item: tuple(sorted(item.items()))), values, max_size=6))
def test_whatever_is_exposed_is_read_back(series: dict[tuple[tuple[str, str], ...], float]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    lines = [
        "vllm:a{" + ",".join(f'{name}="{escaped(text)}"' for name, text in pairs) + "} " + _written(value)
        for pairs, value in series.items()
    ]
    page = parse("".join(f"{line}\n" for line in lines).encode(), {"vllm:a"})
    assert page.samples.get("vllm:a", {}) == series


@given(start=st.sampled_from([b"", b"a ", b'a{b="', b"a 1\n"]), rest=st.binary(max_size=80))
def test_any_bytes_are_a_page_or_a_page_error(start: bytes, rest: bytes) -> None:
    with contextlib.suppress(PageError):
        parse(start + rest, {"a"})


def _written(value: float) -> str:
    return "+Inf" if value == inf else "-Inf" if value == -inf else repr(value)


def test_a_series_read_before_is_checked_on_every_page() -> None:
    name = "vllm:generation_tokens_total"
    for value in ("5", "7"):
        page = parse(f'{name}{{engine="0"}} {value}\n'.encode(), {name})
        assert page.counter(name) == {(("engine", "0"),): int(value)}
    for broken in ("5_0", "", "infinit", "1 2 3 x"):
        with pytest.raises(PageError):
            parse(f'{name}{{engine="0"}} {broken}\n'.encode(), {name})


@given(st.lists(st.lists(st.sampled_from(LINES), max_size=12), min_size=2, max_size=5))
def test_pages_read_one_after_the_other_are_read_as_each_alone(pages: list[list[str]]) -> None:
    parser = Parser({"a", "b"})
    for lines in pages:
        body = "".join(f"{line}\n" for line in lines).encode()
        try:
            alone = parse(body, {"a", "b"})
        except PageError as error:
            with pytest.raises(PageError, match=f"^{re.escape(str(error))}$"):
                parser.parse(body)
        else:
            assert parser.parse(body) == alone


LINES_OF_COUNTS = [
    *("a 1", "a 2.5", 'a{x="1"} 7', 'b{x="1"} 8', 'b{x="1"} 9', "b 1e3", "a NaN", "# EOF", "", "# HELP a", "other 5"),
    *('h_bucket{le="1"} 3', 'h_bucket{le="1"} 4', 'h_bucket{le="+Inf"} 9', "a 1 1700000000"),
]


@given(st.lists(st.tuples(st.lists(st.sampled_from(LINES_OF_COUNTS), max_size=8), st.booleans()), max_size=6))
def test_pages_read_without_their_buckets_have_the_other_series_of_each_alone(
    pages: list[tuple[list[str], bool]],
) -> None:
    wanted = {"a", "b", "h_bucket"}
    parser = Parser(wanted)
    for lines, buckets in pages:
        body = "".join(f"{line}\n" for line in lines).encode()
        try:
            expected = parse(body, wanted).samples
        except PageError as error:
            with pytest.raises(PageError, match=f"^{re.escape(str(error))}$"):
                parser.parse(body, buckets=buckets)
            continue
        if not buckets:
            expected = {name: series for name, series in expected.items() if name != "h_bucket"}
        samples = parser.parse(body, buckets=buckets).samples
        assert repr(sorted(samples.items())) == repr(sorted(expected.items()))
