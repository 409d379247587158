"""`pertoken top --web`: a browser of this host, and no page from elsewhere."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from pertoken.installed import install_command
from tests import browser
from tests.llama import free_port
from tests.values import new_store

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Its address, and the folder it was started in, which holds a module of a name that pertoken imports."""
    folder = tmp_path_factory.mktemp("web")
    new_store(folder / "db")
    (folder / "psutil.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('ran')\n")
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pertoken", "top", "--db", str(folder / "db"), "--web", str(port)],
        cwd=folder,
        env=os.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while ask(f"http://127.0.0.1:{port}", "/", {})[0] is None:
            assert time.monotonic() < deadline and process.poll() is None
        yield f"http://127.0.0.1:{port}", folder
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)


def ask(base: str, path: str, headers: dict[str, str]) -> tuple[int | None, str, str]:
    """Return status, text and content policy of a page; no status while nobody listens."""

    async def get() -> tuple[int | None, str, str]:
        try:
            async with aiohttp.ClientSession() as session, session.get(base + path, headers=headers) as reply:
                return reply.status, await reply.text(), reply.headers.get("Content-Security-Policy", "")
        except aiohttp.ClientConnectionError:
            return None, "", ""

    return asyncio.run(get())


def first_bytes(base: str, origin: str | None) -> bytes | int:
    """Return what the screens send first over the web socket, or the status of a refusal."""

    async def connect() -> bytes | int:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(f"{base}/ws", origin=origin, timeout=aiohttp.ClientWSTimeout(ws_close=1)) as socket,
            ):
                message = await socket.receive(DEADLINE_S)
                return message.data if isinstance(message.data, bytes) else str(message.data).encode()
        except aiohttp.WSServerHandshakeError as error:
            return error.status

    return asyncio.run(connect())


@pytest.mark.parametrize("path", ["/", "/ws", "/static/js/textual.js"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "127.0.0.1:1"},
    ],
    ids=str,
)
def test_a_page_from_elsewhere_is_refused(served: tuple[str, Path], path: str, headers: dict[str, str]) -> None:
    status, text, _ = ask(served[0], path, headers)
    assert status == 403
    assert "open that address" in text


def test_the_screens_open_for_their_own_page_alone(served: tuple[str, Path]) -> None:
    base, folder = served
    assert first_bytes(base, "http://evil.example") == 403
    assert isinstance(first_bytes(base, base), bytes)
    assert not (folder / "ran").exists()


def test_the_page_loads_nothing_from_another_host_and_takes_keys_without_a_click(served: tuple[str, Path]) -> None:
    status, text, policy = ask(served[0], "/", {})
    assert status == 200
    assert "googleapis" not in text and "https://" not in text
    assert "font-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "xterm-helper-textarea" in text and ".focus()" in text


@pytest.mark.skipif(browser.DRIVER is None or browser.CHROMIUM is None, reason="needs Debian's chromium-driver")
def test_keys_reach_the_screens_of_a_real_browser_without_a_click(served: tuple[str, Path], tmp_path: Path) -> None:
    with browser.chromium(tmp_path / "profile") as page:
        page.open(served[0])
        page.until(
            "return document.activeElement.className == 'xterm-helper-textarea'", "the terminal to have the focus"
        )
        page.until("return document.body.classList.contains('-first-byte')", "the screens to appear")
        assert page.run("return document.documentElement.scrollHeight <= innerHeight"), "its style sheet is there"
        page.type("q")
        page.until("return document.body.classList.contains('-closed')", "the screens to end")
        elsewhere = "return performance.getEntriesByType('resource').map(one => new URL(one.name).host)"
        assert set(page.run(elsewhere)) == {served[0].removeprefix("http://")}


def test_without_the_extra_its_install_command_is_named(tmp_path: Path) -> None:
    new_store(tmp_path / "db")
    script = "import sys; sys.modules['textual_serve.server'] = None; from pertoken.cli import main; main()"
    arguments = ["top", "--db", str(tmp_path / "db"), "--web", str(free_port())]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    message = f"pertoken: --web needs textual-serve: {install_command('web')}\n"
    assert (done.returncode, done.stderr) == (2, message)
