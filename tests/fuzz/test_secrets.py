"""Secrets planted in settings, files and variables: in no log, process, file of the database, report or message."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from pertoken.cli import main
from tests.agent.servers import answering, http
from tests.agent.whole_agent import until
from tests.llama import free_port
from tests.soon import SOON

NAMES = (
    *("token", "variable", "ship", "credential", "gateway", "hook", "query", "signing", "header", "collector"),
    *("metrics", "mail", "pages"),
)
SECRETS = {name: f"planted-{name}-s3cret" for name in NAMES}
CAPTURE = (Path(__file__).parents[1] / "captures/vllm-0.32.0-metrics-after.prom").read_bytes()
OF_SETTINGS = ("config show", "config show --json")
OF_DATABASE = (
    *("doctor", "top --once", "costs --json", "export csv --table event", "export csv --table engine"),
    *("report --html", "report --md", "report --csv", "report --focus", "report --weekly", "alerts list"),
)
OF_DELIVERY = ("alerts test old", "report --weekly --to webhook", "report --weekly --to mail")
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


def settings(folder: Path, url: str) -> Path:
    for name in ("token", "gateway", "metrics", "mail", "pages"):
        (folder / name).write_text(SECRETS[name])
    file = folder / "pertoken.toml"
    file.write_text(f"""
[agent]
interval = "1s"
discover = false
probes = []
cloud_metadata = false
engines = ["{url}"]
access = [
  {{url = "{url}/gateway", token_file = "{folder}/gateway"}},
  {{url = "{url}", token_file = "{folder}/token"}},
  {{url = "http://gw:1", token_env = "PLANTED"}},
]
metrics_listen = "127.0.0.1:{free_port()}"
metrics_token_file = "{folder}/metrics"
otlp_endpoint = "{url}/collector?key={SECRETS["collector"]}"
[advisor]
pages_listen = "127.0.0.1:{free_port()}"
pages_readers = [{{token_file = "{folder}/pages", owners = ["search"]}}]
otlp_endpoint = "{url}/collector?key={SECRETS["collector"]}"
[[gateways]]
url = "{url}/gateway"
kind = "litellm"
[alerts.old]
when = "stale_s >= 0"
for = "0s"
to = ["log", "{url}/hook/{SECRETS["hook"]}?{SECRETS["query"]}"]
[delivery]
webhook = "{url}/hook/{SECRETS["hook"]}?{SECRETS["query"]}"
secret_env = "SIGNING"
smtp = "127.0.0.1:1"
smtp_password_file = "{folder}/mail"
mail_from = "a@example.com"
mail_to = ["b@example.com"]
[ship]
url = "postgresql://someone:{SECRETS["ship"]}@127.0.0.1:1/none"
every = "1s"
""")
    return file


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Everything that an agent and an advisor with those settings leave behind, by where it was found."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "credentials").mkdir()
    (folder / "credentials/pertoken.database-url").write_text(f"postgresql://a:{SECRETS['credential']}@127.0.0.1:1/b")
    variables = {"PLANTED": SECRETS["variable"], "SIGNING": SECRETS["signing"], HEADERS: f"key={SECRETS['header']}"}
    environment = {**os.environ, **variables, "CREDENTIALS_DIRECTORY": str(folder / "credentials")}
    asked: list[str] = []

    def answer(connection: socket.socket, path: str) -> None:
        """Serve an engine's page; refuse at the gateway, the webhook and the collector."""
        elsewhere = path.startswith(("/gateway", "/hook", "/collector"))
        connection.sendall(http(b"no", status=403) if elsewhere else http(CAPTURE))

    def was_sent(name: str, path: str) -> Callable[[], bool]:
        return lambda: any(SECRETS[name] in each for each in asked if each.split(" ")[1].startswith(path))

    with answering(answer, asked=asked) as url:
        file = settings(folder, url)
        options = ["--db", str(folder / "db"), "--config", str(file)]
        with _running("agent", options, environment, folder / "agent.log") as agent:
            until(was_sent("token", "/metrics"), "a request with the token")
            until(was_sent("gateway", "/gateway"), "a request with the key of the gateway")
            until(was_sent("header", "/collector"), "a push with the key of the collector")
            until(lambda: "127.0.0.1:1/none" in (folder / "agent.log").read_text(), "the server that is not there")
            until(lambda: "/collector" in (folder / "agent.log").read_text(), "the push that was refused")
            found = {"process list of the agent": _command_lines(agent)}
        asked.clear()
        with _running("advise", [*options, "--every", "1h"], environment, folder / "advise.log") as advisor:
            until(was_sent("query", "/hook"), "an alert")
            until(was_sent("header", "/collector"), "a push with the key of the collector")
            until(lambda: "try 1 of 5" in (folder / "advise.log").read_text(), "the alert that was refused")
            found["process list of the advisor"] = _command_lines(advisor)
        found |= {name: (folder / name).read_text() for name in ("agent.log", "advise.log")}
        for path in (folder / "db").rglob("*"):
            found[f"file {path.name}"] = path.read_bytes().decode("latin-1") if path.is_file() else ""
        for name in (*OF_SETTINGS, *OF_DATABASE, *OF_DELIVERY):
            where = [] if name in OF_SETTINGS or name.startswith("alerts test") else ["--db", str(folder / "db")]
            done = CliRunner().invoke(main, [*name.split(), "--config", str(file), *where], env=variables)
            found[name] = f"{done.output}{done.exception!r}"
            assert done.exit_code == (name in OF_DELIVERY), found[name]
    yield found


@contextmanager
def _running(
    command: str, options: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of the package, its output in a file; end it afterwards."""
    with log.open("wb") as output:
        arguments = [*SOON, command, *options]
        process = subprocess.Popen(arguments, env=dict(environment), stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def _command_lines(process: subprocess.Popen[bytes]) -> str:
    """Return what a list of processes shows of a program and its children."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    return "\n".join(map(_command_line, family))


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a worker that ended since it was listed
        return ""


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_seen_nowhere(traces: dict[str, str], name: str) -> None:
    programs = ("agent.log", "advise.log", "process list of the agent", "process list of the advisor")
    files = ("file telemetry.db", "file advice.db")
    assert all(traces[each] for each in (*programs, *files, *OF_SETTINGS, *OF_DATABASE, *OF_DELIVERY))
    assert [where for where, text in traces.items() if SECRETS[name] in text] == []


PLACES = ('agent = {engines = ["URL"]}', 'gateways = [{url = "URL"}]', 'agent = {access = [{url = "URL"}]}')


@pytest.mark.parametrize(
    "url", ["http://me:planted@host:8000", "http://host:8000/?key=planted", "http://host/#planted"]
)
@pytest.mark.parametrize("place", PLACES)
def test_an_address_with_a_secret_in_it_is_refused_without_repeating_it(tmp_path: Path, url: str, place: str) -> None:
    (tmp_path / "pertoken.toml").write_text(place.replace("URL", url) + "\n")
    result = CliRunner().invoke(main, ["config", "show", "--config", str(tmp_path / "pertoken.toml")])
    assert result.exit_code == 2 and "planted" not in result.output
