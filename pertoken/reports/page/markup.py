"""HTML and SVG in which every text is escaped: only `tag` makes markup."""

from collections.abc import Iterable
from html import escape

from pertoken.printable import literal

VOID = frozenset({"meta", "br"})
"""HTML elements without an end tag."""


class Markup(str):
    """Text that is already markup and not escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: "str | Iterable[str]", **attributes: object) -> Markup:
    """Return an element; children that are not `Markup` are text.

    Attributes are written `class_` for `class`, and `stroke_width` for `stroke-width`.
    """
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(literal(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(map(text, flat(children)))
    return Markup(f"<{name}{named}>" if name in VOID else f"<{name}{named}>{inner}</{name}>")


def flat(children: "Iterable[str | Iterable[str]]") -> Iterable[str]:
    """Yield children, with sequences flattened."""
    for child in children:
        if isinstance(child, str):
            yield child
        else:
            yield from child


def text(child: str) -> str:
    """Return a child as markup: escaped text on one line."""
    return child if isinstance(child, Markup) else escape(literal(child))
