"""All that an agent and the commands over its database print, log and store: nothing acts, and no secret is in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from socket import socket

import pytest
from click.testing import CliRunner

from pertoken.cli import main
from tests.agent.servers import answering, http
from tests.recorded import agent, kinds, until

SECRET = "planted-secret"
ENVIRONMENT = {
    "PLANTED_TOKEN": SECRET,
    "PERTOKEN_AGENT_DISCOVER": "false",
    "PERTOKEN_AGENT_PROBES": "",
    "PERTOKEN_SHIP_URL": f"postgresql://someone:{SECRET}@127.0.0.1:1/none",
    "PERTOKEN_SHIP_EVERY": "1s",
}
EVIL = "evil\x1b[31m\x9b2J\u202e\r\x7fmodel".encode()
CAPTURE = Path(__file__).parents[2] / "captures/vllm-0.32.0-metrics-after.prom"
COMMANDS = (
    ["top"],
    ["advise"],
    ["advise", "--json"],
    ["costs"],
    ["costs", "--csv"],
    ["costs", "--json"],
    ["doctor"],
    ["doctor", "--json"],
    ["agent", "--once"],
    ["agent", "--once", "--json"],
    ["config", "show"],
    ["config", "show", "--json"],
    ["db", "info"],
    ["db", "check"],
    ["prices", "set", "1", "--for", "cpu"],
    ["prices", "show"],
    *(
        ["export", "csv", "--table", table]
        for table in ("event", "deployment", "engine", "epoch", "capability", "host")
    ),
)


@pytest.fixture(scope="module")
def recorded_by_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, str]]:
    """Folder, settings file and log of an agent that read an engine with names that act, and then a broken one."""
    folder = tmp_path_factory.mktemp("captured")
    broken = [False]

    def answer(connection: socket, path: str) -> None:
        if broken[0]:
            away = (
                b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\x1b[31m"
                + EVIL
                + b"\r\nContent-Length: 0\r\n\r\n"
            )
            connection.sendall(away)
        elif path == "/metrics":
            connection.sendall(http(CAPTURE.read_bytes().replace(b'model_name="', b'model_name="' + EVIL)))
        else:
            connection.sendall(http(json.dumps({"data": [{"id": EVIL.decode()}], "version": EVIL.decode()}).encode()))

    with answering(answer) as url:
        settings = folder / "pertoken.toml"
        settings.write_text(
            f'[agent]\nengines = ["{url}"]\n[[agent.access]]\nurl = "{url}"\ntoken_env = "PLANTED_TOKEN"\n'
        )
        with agent(folder / "db", "--config", str(settings), **ENVIRONMENT):
            until(lambda: "engine" in " ".join(kinds(folder / "db")) or True, "a tick")
            until(lambda: named(folder / "db"), "the engine to be read")
            broken[0] = True
            until(lambda: "ship_failed" in kinds(folder / "db"), "shipping to fail")
            until(lambda: any(kind.startswith("engine") for kind in kinds(folder / "db")), "the page to fail")
        yield folder / "db", settings, (folder / "db.log").read_text()


def named(folder: Path) -> bool:
    """Return whether a deployment with the planted name is stored."""
    done = CliRunner().invoke(main, ["export", "csv", "--table", "deployment", "--db", str(folder)])
    return "evil" in done.stdout


def assert_harmless(text: str) -> None:
    assert SECRET not in text
    acting = {char for char in text if not char.isprintable() and char not in "\n\xa0"}
    assert not acting, ascii(text[-3000:])


def test_the_log_of_the_agent_holds_no_secret_and_acts_on_no_terminal(
    recorded_by_agent: tuple[Path, Path, str],
) -> None:
    _, _, log = recorded_by_agent
    assert "ship" in log
    assert_harmless(log)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_output_over_what_it_recorded_holds_a_secret_or_acts(
    recorded_by_agent: tuple[Path, Path, str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, settings, _ = recorded_by_agent
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    place = [] if command[0] == "config" else ["--db", str(folder)]
    done = CliRunner().invoke(main, [*command, "--config", str(settings), *place])
    assert done.exit_code == 0, done.output
    assert_harmless(done.output)
    if command[-1] == "event":
        assert "ship_failed" in done.stdout
