"""Text without markup that is laid out again only when it changes."""

from typing import Any

from textual.visual import VisualType
from textual.widgets import Static


class PlainText(Static):
    """Text without markup. An update with the same text does nothing, because screens are updated at every refresh."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(markup=False, **kwargs)

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        """Show a text."""
        if not (isinstance(content, str) and content == self.content):
            super().update(content, layout=layout)
