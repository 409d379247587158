"""Commands that install more of this pertoken, from the source of its installation."""

import json
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from shlex import quote
from urllib.parse import unquote, urlsplit

PACKAGE = "pertoken"


def install_command(extra: str, installed: Distribution | None = None) -> str:
    """Return the command that adds an extra to this environment."""
    name, at_sign, url = install_source(installed).partition(" @ ")
    return f"{quote(sys.executable)} -m pip install {quote(f'{name}[{extra}]{at_sign}{url}')}"


def install_source(installed: Distribution | None = None) -> str:
    """Return the source of this pertoken for pip: its checkout, its wheel, or its name in a package index."""
    try:
        record = (installed or distribution(PACKAGE)).read_text("direct_url.json")  # of PEP 610; an index writes none
    except PackageNotFoundError:
        return PACKAGE
    url = urlsplit(json.loads(record)["url"]) if record else None
    if url is None:
        return PACKAGE
    return unquote(url.path) if url.scheme == "file" else f"{PACKAGE} @ {url.geturl()}"
