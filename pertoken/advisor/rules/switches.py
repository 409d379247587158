"""Rules that a person switched off: a text file beside the configuration, one name per line.

It is a separate file because rewriting the TOML configuration would lose its comments, and because the database is
shared by people and machines with different plugins. Every run with that configuration reads the file, and a person
can edit it.
"""

from pathlib import Path

from pertoken.errors import BadInput

FILE = "disabled-rules.txt"
_HEADER = "# Rules that pertoken does not run, one id per line. Written by `pertoken rules enable|disable`.\n"


def disabled(folder: Path) -> tuple[str, ...]:
    """Return the disabled names in the configuration's folder. Raises BadInput for a file that cannot be read."""
    file = folder / FILE
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file}: cannot be read: {error}; fix or delete it") from None
    names = (line.partition("#")[0].strip() for line in lines)
    return tuple(dict.fromkeys(name for name in names if name))


def disable(folder: Path, name: str) -> None:
    """Add a name to the file. Raises OSError if it cannot be written."""
    _write(folder, (*disabled(folder), name))


def enable(folder: Path, name: str) -> None:
    """Remove a name from the file. Raises OSError if it cannot be written."""
    _write(folder, tuple(switched_off for switched_off in disabled(folder) if switched_off != name))


def _write(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    new = file.with_suffix(".new")
    new.write_text(_HEADER + "".join(f"{name}\n" for name in dict.fromkeys(names)), encoding="utf-8")
    new.replace(file)  # a concurrent run reads the old or the new list, never a partial one
