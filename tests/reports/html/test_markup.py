from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from pertoken.reports.html import tag


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    inner = tag("b", "a<b>&\"'")
    assert tag("p", inner, [" c", " d"], title='"x"', class_="k", stroke_width="2", id=None) == (
        '<p title="&quot;x&quot;" class="k" stroke-width="2"><b>a&lt;b&gt;&amp;&quot;&#x27;</b> c d</p>'
    )
    assert tag("br") == "<br>"


@given(st.text(), st.text())
def test_no_text_opens_a_tag_or_leaves_its_attribute(text: str, attribute: str) -> None:
    seen: list[tuple[str, list[tuple[str, str | None]]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, attrs))

    Reader().feed(tag("p", text, title=attribute))
    assert [name for name, _ in seen] == ["p"] and [key for key, _ in seen[0][1]] == ["title"]
