"""The settings file as text: every key with its meaning, commented out at its default."""

import ast
import inspect
import itertools
from typing import cast

from pertoken.config import Settings


def meanings() -> dict[str, str]:
    """Return what each attribute of `Settings` means: the docstring under it, so that it is written once."""
    tree = ast.parse(inspect.getsource(Settings))
    body = cast(ast.ClassDef, tree.body[0]).body
    docstrings: dict[str, str] = {}
    for node, after in itertools.pairwise(body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            docstrings[node.target.id] = " ".join(str(after.value.value).split())
    return docstrings


def template() -> str:
    """Return a complete settings file in which nothing is set."""
    lines = ["# pertoken settings. Each key is also an environment variable, which wins over this file."]
    section = ""
    explained = meanings()
    for key in sorted(Settings.table(), key=lambda key: key.section != ""):  # TOML: tables come after plain keys
        if key.section != section:
            section = key.section
            lines += ["", f"[{section}]"] if section else []
        lines += ["", *(f"# {line}" for line in _wrapped(explained[key.attribute])), f"# ({key.environment})"]
        lines.append(f"# {key.key} = {key.example}")
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 98)
