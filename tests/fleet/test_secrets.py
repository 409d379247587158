"""A password appears nowhere: not in messages, logs, rows, arguments or the environment of a child."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pertoken.agent.shipper.supervisor import Shipping
from pertoken.cli import main
from pertoken.config import load
from pertoken.errors import PertokenError
from pertoken.store.connect.location import DatabaseServer, StoreLocation, locate, server_url, shipping_server
from pertoken.store.write.writer import Writer
from tests.fleet.servers import host, shipper
from tests.values import new_store

CANARY = "canary-4711"
AWAY = f"postgresql://someone:{CANARY}@127.0.0.1:1/none"
WRONG = [
    AWAY,
    f"postgresql://someone:{CANARY}@nowhere.invalid/none",
    f"postgresql://someone@127.0.0.1:1/none?password={CANARY}",
    f"postgresql://someone:b@{CANARY}@127.0.0.1:1/none",
    f"postgresql://someone:{CANARY}@127.0.0.1:port/none",
    f"postgresql+psycopg://someone:{CANARY}@127.0.0.1:1/none",
    f"postgresql+nothing://someone:{CANARY}@127.0.0.1:1/none",
    f"mysql://someone:{CANARY}@127.0.0.1/none",
    f"postgresql://someone:{CANARY}@127.0.0.1:1/none?sslmode=nonsense",
    f"postgresql://someone:{CANARY}@127.0.0.1:1/none?nonsense=1",
    f"postgresql:/someone:{CANARY}@127.0.0.1",
]
COMMANDS = [
    ["top"],
    ["advise"],
    ["prices", "show"],
    ["prices", "set", "1", "--for", "gpu"],
    ["db", "info"],
    ["db", "check"],
    ["db", "upgrade"],
    ["db", "purge"],
    ["db", "init-fleet"],
    ["db", "init-fleet", "--dry-run"],
    ["db", "maintain"],
    ["db", "enroll", "somebody"],
    ["db", "disown", "somebody"],
    ["db", "request-raw", "somebody"],
    ["agent", "status"],
    ["config", "show"],
    ["config", "check"],
]


@pytest.mark.parametrize("url", WRONG)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_repeats_it(command: list[str], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERTOKEN_DB", url)
    done = CliRunner().invoke(main, command)
    assert CANARY not in done.output + done.stderr + repr(done.exception)
    assert "Traceback" not in done.output
    if command[0] not in ("config", "agent"):
        assert done.exit_code in (1, 2) and len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("url", WRONG)
def test_no_failure_of_shipping_repeats_it(url: str, tmp_path: Path) -> None:
    texts: list[Any] = []

    def fails(what: Callable[[], Any]) -> None:
        try:
            texts.append(what())
        except PertokenError as error:
            texts.extend([str(error), repr(error), repr(error.__cause__)])

    where = host(tmp_path, minutes=2)
    settings = load(None, {"PERTOKEN_SHIP_URL": url})
    fails(lambda: repr(shipping_server(settings, {})))
    fails(lambda: str(shipping_server(settings, {})))
    fails(lambda: shipper(where, DatabaseServer(server_url(url, "ship.url"))).round())
    assert texts and CANARY not in str(texts)


def test_settings_are_shown_without_it(tmp_path: Path) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text(f'db = "{AWAY}"\n[ship]\nurl = "{AWAY}"\n')
    for options in ([], ["--json"]):
        done = CliRunner().invoke(main, ["config", "show", "--config", str(file), *options])
        assert done.exit_code == 0 and CANARY not in done.output and "someone:***@" in done.output
    for wrong in ("ship.url = ['x']", f"ship.url = ['{AWAY}']", f"db = ['{AWAY}']", f"ship.tls = '{CANARY}'"):
        file.write_text(wrong)
        done = CliRunner().invoke(main, ["config", "check", "--config", str(file)])
        assert done.exit_code == 2 and AWAY not in done.output


def test_a_child_gets_the_password_through_a_pipe_and_its_failure_events_do_not_contain_it(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        writer.ship(True)
    host(tmp_path, minutes=2)
    shipping = Shipping(tmp_path, DatabaseServer(server_url(AWAY, "test")))
    try:
        with pytest.raises(PertokenError) as caught:
            shipping.round(threading.Event())
        assert shipping._child is not None
        pid = shipping._child.process.pid
        shown = "".join(Path(f"/proc/{pid}/{name}").read_bytes().decode() for name in ("cmdline", "environ"))
        shown += str(caught.value)
        events = shipping.events()
    finally:
        shipping.close()
    assert CANARY not in shown + str(events)
    assert events[0].kind == "ship_failed" and "someone:***@127.0.0.1:1" in events[0].message
    assert (
        json.dumps(DatabaseServer(server_url(AWAY, "test")).to_json()).count(CANARY) == 1
    )  # only in what the pipe carries


def test_a_place_shows_none(tmp_path: Path) -> None:
    where: StoreLocation = locate(f"postgresql://x@127.0.0.1/y?password={CANARY}")
    assert CANARY not in str(where) + repr(where)
