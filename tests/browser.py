"""Headless Chromium driven over WebDriver: https://www.w3.org/TR/webdriver2/."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.llama import free_port

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
"""Debian's packages chromium-driver and chromium; None where they are not installed."""
DEADLINE_S = 60.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=1280,800"),
)


class Page:
    """One window of the browser."""

    def __init__(self, session_url: str) -> None:
        self._url = session_url

    def open(self, url: str) -> None:
        """Load a page."""
        _ask("POST", f"{self._url}/url", {"url": url})

    def resize(self, width: int, height: int) -> None:
        """Show pages in a window of this size, in CSS pixels."""
        params = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": params}
        _ask("POST", f"{self._url}/goog/cdp/execute", command)

    def prepare(self, script: str) -> None:
        """Run a script in every page that is loaded from now on, before any of its own."""
        command = {"cmd": "Page.addScriptToEvaluateOnNewDocument", "params": {"source": script}}
        _ask("POST", f"{self._url}/goog/cdp/execute", command)

    def run(self, script: str) -> Any:
        """Return the value of a function body in the page."""
        return _ask("POST", f"{self._url}/execute/sync", {"script": script, "args": []})

    def type(self, text: str) -> None:
        """Press keys, wherever the focus is: nothing is clicked."""
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        _ask("POST", f"{self._url}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def messages(self) -> list[str]:
        """Return what the console printed since it was last asked; needs `logged`."""
        return [entry["message"] for entry in self._log("browser")]

    def requested(self) -> list[str]:
        """Return the URLs that pages asked for since it was last asked; needs `logged`."""
        events = (json.loads(entry["message"])["message"] for entry in self._log("performance"))
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def _log(self, kind: str) -> Any:
        return _ask("POST", f"{self._url}/se/log", {"type": kind})

    def screenshot(self, file: Path) -> None:
        """Write what the window shows as a PNG."""
        file.write_bytes(b64decode(_ask("GET", f"{self._url}/screenshot")))

    def until(self, script: str, what: str) -> None:
        """Wait until a function body returns true."""
        wait_for(lambda: bool(self.run(script)), what)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait for `what` until the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.15)


@contextmanager
def chromium(profile: Path, *, logged: bool = False) -> Iterator[Page]:
    """Run a browser of its own with an empty profile; `logged` keeps its console and its requests."""
    assert DRIVER is not None and CHROMIUM is not None
    port = free_port()
    with subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        try:
            base = f"http://127.0.0.1:{port}"
            wait_for(lambda: _ready(base), "chromedriver to answer")
            options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
            logs = {"goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}} if logged else {}
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options, **logs}}}
            session_url = f"{base}/session/{_ask('POST', f'{base}/session', wanted)['sessionId']}"
            try:
                yield Page(session_url)
            finally:
                _ask("DELETE", session_url)
        finally:
            driver.terminate()


def _ready(base: str) -> bool:
    try:
        return bool(_ask("GET", f"{base}/status")["ready"])
    except urllib.error.URLError:
        return False


def _ask(method: str, url: str, body: object = None) -> Any:
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
        return json.load(reply)["value"]
