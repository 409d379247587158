"""Hook of the site's generator: links to files of the repository outside `docs/` lead to the repository."""

import re
from typing import Any

REPOSITORY = "https://github.com/pertoken/pertoken/blob/main/"
_LINK = re.compile(r"\]\(\.\./([^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with such links made absolute."""
    return _LINK.sub(rf"]({REPOSITORY}\1)", markdown)
