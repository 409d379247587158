"""Where rules are kept, and which of these places may be loaded. Nothing here runs code of a plugin."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path

from pertoken.advisor.rules.switches import disabled
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.settings.keys import APP

GROUP = "pertoken.rules"
DROP_IN = "rules.d"
"""Folder beside the configuration file, of which every run loads the files."""


class Permission(StrEnum):
    """Whether the rules of a place may be loaded."""

    ALLOWED = "allowed"
    DISABLED = "disabled"
    """Switched off by a person."""
    DENIED = "denied"
    """By the lists of distributions, or because others could have written the file."""
    MISSING = "missing"
    """A setting names a file that is not there."""


@dataclass(frozen=True, slots=True)
class Found:
    """One module that holds rules, by entry point or as a file, before any of its code has run."""

    name: str
    """Of the entry point, or of the file without its suffix."""
    origin: str
    """The distribution and version, or the file."""
    distribution: str | None = None
    version: str | None = None
    entry_point: EntryPoint | None = None
    file: Path | None = None
    """None for an entry point."""
    permission: Permission = Permission.ALLOWED
    reason: str | None = None
    """Why it may not be loaded, and what would change that."""
    tried: bool = False
    """Whether it was named for this run alone: it runs even if it is switched off."""

    @property
    def fault(self) -> str | None:
        """Return why a file that somebody wants to run cannot be; None where not loading it is what was asked for."""
        unwanted = self.permission is Permission.MISSING or (self.file and self.permission is Permission.DENIED)
        return self.reason if unwanted else None


def find_rules(settings: Settings, tried: Iterable[Path] = ()) -> tuple[Found, ...]:
    """Return every place that holds rules: installed packages, the drop-in folder, `advisor.rules`, then `tried` files.

    Raises BadInput for a tried file that is not there, or a list of disabled rules that cannot be read.
    """
    tried = tuple(tried)
    for file in tried:
        if not file.is_file():  # one that may not be looked at is an error of the system
            raise BadInput(f"--rule {file}: no such file")
    places = (*_allowed(installed(), settings), *_drop_ins(settings.folder / DROP_IN), *_named(settings))
    off = set(disabled(settings.folder))
    kept = tuple(_disabled(each) if each.name in off else each for each in places)
    own = tuple(Found(file.stem, str(file), file=file, tried=True) for file in tried)
    # It takes the place of one of its name: the copy that every run loads holds the same ids.
    names = {file.name for file in tried}
    return (*(each for each in kept if each.file is None or each.file.name not in names), *own)


def installed() -> tuple[Found, ...]:
    """Return the rules of installed distributions, the built-in ones first: no other rule takes the id of one."""
    origin_of = cache(_origin_of)  # each look at a distribution's name or version parses its metadata again
    places = [
        Found(point.name, origin or point.value, distribution, version, entry_point=point)
        for point in entry_points(group=GROUP)
        for origin, distribution, version in [origin_of(point.dist)]
    ]
    return tuple(sorted(places, key=lambda each: (each.distribution != APP, each.distribution or "", each.name)))


def _origin_of(installed: Distribution | None) -> tuple[str | None, str | None, str | None]:
    """Return the name with the version of a distribution, its name, and its version."""
    if installed is None:
        return None, None, None
    metadata = installed.metadata
    name, version = metadata["Name"], metadata["Version"]
    return f"{name} {version}", name, version


def _disabled(found: Found) -> Found:
    reason = f"switched off; `pertoken rules enable {found.name}` switches it on"
    return replace(found, permission=Permission.DISABLED, reason=reason)


def _allowed(places: Iterable[Found], settings: Settings) -> Iterator[Found]:
    denied = {_normal(each) for each in settings.advisor_deny}
    allowed = None if settings.advisor_allow is None else {APP, *map(_normal, settings.advisor_allow)}
    for each in places:
        distribution = _normal(each.distribution or "")
        if distribution in denied:
            yield replace(each, permission=Permission.DENIED, reason=f"advisor.deny names {each.distribution}")
        elif allowed is not None and distribution not in allowed:
            reason = f"advisor.allow does not name {each.distribution or each.origin}"
            yield replace(each, permission=Permission.DENIED, reason=reason)
        else:
            yield each


def _normal(distribution: str) -> str:
    """Return a distribution's name as package indexes compare it (packaging.python.org, name normalization)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _drop_ins(folder: Path) -> Iterator[Found]:
    if folder.is_dir():
        yield from _of_folder(folder)


def _named(settings: Settings) -> Iterator[Found]:
    for text in settings.advisor_rules:
        try:
            path = settings.folder / Path(text).expanduser()
            is_folder, is_file = path.is_dir(), path.is_file()
        except (OSError, RuntimeError) as error:  # a folder that may not be entered, a user who does not exist
            path, is_folder, is_file, why = Path(text), False, False, str(error)
        else:
            why = "no such file or folder"
        if is_folder:
            yield from _of_folder(path)
        elif is_file:
            yield _of_file(path)
        else:
            reason = f"{path}: {why}; {settings.set_by.get('advisor_rules', 'advisor.rules')} names it"
            yield Found(path.stem, str(path), file=path, permission=Permission.MISSING, reason=reason)


def _of_folder(folder: Path) -> Iterator[Found]:
    try:
        files = sorted(each for each in folder.glob("*.py") if not each.name.startswith(("_", ".")))
        untrusted = _untrusted(folder)
    except OSError as error:
        files, untrusted = [], f"{folder}: cannot be read: {(error.strerror or str(error)).lower()}"
    if untrusted is not None:
        yield Found(folder.name, str(folder), file=folder, permission=Permission.DENIED, reason=untrusted)
        return
    yield from map(_of_file, files)


def _of_file(file: Path) -> Found:
    found = Found(file.stem, str(file), file=file)
    try:
        # A link leads to a file elsewhere, which is only as safe as the folder it is in.
        untrusted = _untrusted(file) or _untrusted(file.resolve().parent)
    except OSError as error:
        untrusted = f"{file}: cannot be read: {(error.strerror or str(error)).lower()}"
    return found if untrusted is None else replace(found, permission=Permission.DENIED, reason=untrusted)


def _untrusted(path: Path) -> str | None:
    """Return why code at a path is not loaded: another user owns it, or everybody may write it. Root may own it."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        owner = f"user {status.st_uid} owns it and could change it"
        return f"{path}: not loaded: {owner}; make it yours (`chown {os.geteuid()}`)"
    if status.st_mode & stat.S_IWOTH:
        return f"{path}: not loaded: every user may write it; take that away (`chmod o-w`)"
    return None
