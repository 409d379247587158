"""Template files of a new rule, which runs and passes the conformity suite without changes."""

import keyword
import re
from importlib.resources import files
from pathlib import Path

from pertoken.errors import BadInput

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_NAME = 60


def new_rule(name: str, folder: Path, *, package: bool = False) -> tuple[Path, ...]:
    """Write a rule named `name` into a folder, and return its files; the first path of a package is its folder.

    Raises BadInput for a name that is not a rule id or does not begin with a letter, or for an existing file. Raises
    OSError for a file that cannot be written.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise BadInput(f"{name!r}: use lower-case words joined by hyphens, a letter first, such as lower-clocks")
    identifier = name.replace("-", "_")
    function = f"{identifier}_" if keyword.iskeyword(identifier) else identifier
    module = f"pertoken_rule_{identifier}" if package else identifier
    words = {"@NAME@": name, "@FUNCTION@": function, "@MODULE@": module}
    if not package:
        file = folder / f"{module}.py"
        _write({file: _filled("rule.py.txt", words)})
        return (file,)
    home = folder / f"pertoken-rule-{name}"
    texts = {
        home / f"{module}.py": _filled("rule.py.txt", words),
        home / "pyproject.toml": _filled("pyproject.toml.txt", words),
        home / "tests" / f"test_{identifier}.py": _filled("test.py.txt", words),
    }
    if home.exists():
        raise BadInput(f"{home} exists already: choose another name, or move it away")
    _write(texts)
    return (home, *texts)


def _filled(template: str, words: dict[str, str]) -> str:
    text = files("pertoken.advisor.rules").joinpath("templates", template).read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _write(texts: dict[Path, str]) -> None:
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            raise BadInput(f"{file} exists already: choose another name, or move it away") from None
