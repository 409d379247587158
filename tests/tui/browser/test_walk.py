"""All screens in a real browser, and the refusal of every write in read-only screens."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.proof.recommendation import State
from pertoken.proof.stored import keep, standing
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from tests import browser
from tests.llama import free_port
from tests.proof.rows import row
from tests.scenario import LOW_BATCH_70B, seed

pytestmark = pytest.mark.skipif(
    browser.DRIVER is None or browser.CHROMIUM is None, reason="needs Debian's chromium and chromium-driver"
)
LISTEN = """
const Real = WebSocket;
const text = new TextDecoder();
window.seen = "";
window.WebSocket = class extends Real {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", async message => {
      if (message.data instanceof Blob) window.seen += text.decode(await message.data.arrayBuffer());
      else if (message.data instanceof ArrayBuffer) window.seen += text.decode(message.data);
    });
  }
};
"""
"""Script that keeps the text sent to the terminal since the last key, because the terminal is drawn on a canvas."""
SEEN = "return window.seen.replace(/\\x1b\\[[0-9;?<>=]*[a-zA-Z]/g, '')"
SCREENS = (
    ("2", "bankable $/month"),
    ("3", "What if"),
    ("4", "batch-limit"),
    ("h", "by hour"),
    ("?", "Show the fleet"),
    ("1", "run/wait"),
)
"""Keys in turn, each with a text of the screen that it opens."""
REFUSED = "These screens are read-only"
PNG = "PERTOKEN_SCREENSHOT"
"""Variable with the file to write a picture of the browser to."""


def shows(page: browser.Page, text: str) -> None:
    """Wait until a text was sent to the page."""
    page.until(f"{SEEN}.includes({text!r})", f"{text!r}, not {page.run(SEEN)!r}")


def press(page: browser.Page, key: str, text: str) -> None:
    """Press a key, and wait for a text."""
    page.run("window.seen = ''")
    page.type(key)
    shows(page, text)


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """Serve a database with one recommendation, and yield the address."""
    where = seed(
        folder / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=int(time.time()) // 60 * 60
    )
    keep(AdviceRepository(where), [row()], {"quantize"}, int(time.time()), "advisor")
    port = free_port()
    command = [sys.executable, "-P", "-m", "pertoken", "top", "--db", "db", "--web", str(port), *options]
    log = (folder / "db" / "web.log").open("wb")
    process = subprocess.Popen(command, cwd=folder, env=os.environ, stdout=log, stderr=log)
    try:
        browser.wait_for(lambda: _listens(port), "the server")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(browser.DEADLINE_S)
        log.close()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def state(folder: Path) -> State:
    (accepted,) = standing(open_store(locate(str(folder / "db"))))
    return accepted.state


@contextmanager
def opened(folder: Path, *options: str) -> Iterator[browser.Page]:
    """Open the screens of a database in a browser; return when the fleet is shown."""
    with served(folder, *options) as address, browser.chromium(folder / "profile") as page:
        page.prepare(LISTEN)
        page.open(address)
        page.until(
            "return document.activeElement.className == 'xterm-helper-textarea'", "the terminal to have the focus"
        )
        shows(page, "run/wait")
        yield page


def test_every_screen_is_shown_and_nothing_is_decided_switched_or_written(tmp_path: Path) -> None:
    with opened(tmp_path) as page:
        if PNG in os.environ:
            page.screenshot(Path(os.environ[PNG]))
        for key, text in SCREENS:
            press(page, key, text)
        press(page, "2", "bankable $/month")
        for key in ("a", "z", "d"):
            press(page, key, REFUSED)
        press(page, "3", "What if")
        press(page, "e", REFUSED)
        press(page, "4", "batch-limit")
        press(page, " ", REFUSED)
        page.type("q")
        page.until("return document.body.classList.contains('-closed')", "the screens to end")
    assert state(tmp_path) is State.OPEN
    assert {path.name for path in tmp_path.iterdir()} == {"db", "profile"}


def test_with_web_writes_a_browser_can_decide(tmp_path: Path) -> None:
    with opened(tmp_path, "--web-writes") as page:
        press(page, "2", "bankable $/month")
        press(page, "a", "Accept")
        page.type("\ue007")  # enter
        browser.wait_for(lambda: state(tmp_path) is State.ACCEPTED, "the acceptance to be stored")
