"""Output of the screens: a page in a pager, and a screen as files."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from textual.app import App, SuspendNotSupported

from pertoken.text.keys import with_keys

CELL_WIDTH = 12.2
"""Width of a cell in a screenshot: Rich draws characters 20 high and 0.61 as wide."""
_TEXT = re.compile(r'<text [^>]*\bx="([0-9.e+]+)"[^>]*clip-path="url\(#[^)]*-line-(\d+)\)">([^<]*)</text>')
PAGERS = ("less", "more", "cat")
"""Programs to try if $PAGER is not set."""


def text_of_picture(svg: str, height: int) -> str:
    """Return the lines of text of a screenshot, without trailing blanks. `height`: lines of the screen."""
    lines = [""] * height
    for x, number, text in _TEXT.findall(svg):
        line = lines[int(number)]
        start = round(float(x) / CELL_WIDTH)
        lines[int(number)] = line + " " * (start - cell_len(line)) + unescape(text).replace("\xa0", " ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def dump(app: App[Any], folder: Path, now_ts: float) -> tuple[Path, Path]:
    """Write the screen as text and as SVG into new files of a folder; return their paths. Raises OSError."""
    name = f"pertoken-screen-{datetime.fromtimestamp(now_ts, UTC):%Y%m%d-%H%M%S}"
    picture = app.export_screenshot(title="pertoken")
    text = text_of_picture(picture, app.size.height)
    number = 1
    while True:
        stem = folder / f"{name}{'' if number == 1 else f'-{number}'}"
        try:
            with stem.with_suffix(".txt").open("x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            number += 1
            continue
        stem.with_suffix(".svg").write_text(picture, encoding="utf-8")
        return stem.with_suffix(".txt"), stem.with_suffix(".svg")


def save_screen(app: App[Any], now_ts: float) -> None:
    """Write the screen into the folder that pertoken was started in, and notify the files or the error."""
    if app.is_web:
        app.notify("A browser writes no file on the server: save the page there.", markup=False)
        return
    try:
        files = dump(app, Path.cwd(), now_ts)
    except OSError as error:
        app.notify(f"{Path.cwd()}: {error.strerror or error}", severity="error", markup=False)
    else:
        app.notify("Wrote " + " and ".join(str(file) for file in files), markup=False)


def show_in_pager(app: App[Any], text: str) -> None:
    """Show a text in the pager; notify why it cannot be shown."""
    try:
        reason = page_through(app, text)
    except SuspendNotSupported:
        reason = with_keys("A browser has no pager: {dump} saves the screen instead.")
    if reason is not None:
        app.notify(reason, severity="error", markup=False)


def pager() -> list[str]:
    """Return the command of the pager as arguments; empty if there is no pager."""
    import shlex
    import shutil

    try:
        chosen = shlex.split(os.environ.get("PAGER", ""))
    except ValueError:
        chosen = []
    if chosen and shutil.which(chosen[0]):
        return chosen
    return next(([name] for name in PAGERS if shutil.which(name)), [])


def page_through(app: App[Any], text: str) -> str | None:
    """Show a text in the pager, which has the terminal until it ends; return an error message, or None.

    Raises SuspendNotSupported if the app does not run in a terminal.
    """
    import subprocess

    command = pager()
    if not command:
        return "No pager was found: set $PAGER to a program."
    with app.suspend():
        try:
            subprocess.run(command, input=text.encode(), check=False)
        except OSError as error:
            return f"{command[0]}: {error.strerror or error}"
    return None
