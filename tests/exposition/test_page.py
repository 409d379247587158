from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pertoken.exposition import Family, text_of


def test_a_page_has_help_type_and_samples_and_no_family_without_any() -> None:
    page = text_of(
        [Family("a_total", "counter", "A\nb.", [({"m": 'x"\\\n'}, 2.0), ({}, 0.5)]), Family("b", "gauge", "B.", [])]
    )
    assert page == '# HELP a_total A\\nb.\n# TYPE a_total counter\na_total{m="x\\"\\\\\\n"} 2\na_total 0.5\n'
    assert text_of([Family("g", "gauge", "G.", [({}, float("inf")), ({}, float("nan"))])]).count("\n") == 4


@given(st.text().map(lambda text: text.replace("\r", "")), st.floats(allow_nan=False))
def test_any_label_and_value_come_back_from_a_parser(label: str, value: float) -> None:
    (family,) = text_string_to_metric_families(text_of([Family("a", "gauge", "A.", [({"m": label}, value)])]))
    ((_, labels, read, *_),) = family.samples
    assert labels["m"] == label.encode("utf-8", "replace").decode() and read == value
