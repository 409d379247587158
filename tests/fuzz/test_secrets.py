"""Secrets planted in settings, files and variables of an agent: in no log, process, file of the database or message."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from pertoken.cli import main
from tests.agent.servers import answering, http
from tests.agent.whole_agent import until

SECRETS = {name: f"planted-{name}-s3cret" for name in ("token", "variable", "ship", "credential")}
CAPTURE = (Path(__file__).parents[1] / "captures/vllm-0.32.0-metrics-after.prom").read_bytes()
OF_SETTINGS = ("config show", "config show --json")
OF_DATABASE = ("doctor", "top --once", "costs --json", "export csv --table event", "export csv --table engine")


def settings(folder: Path, url: str) -> Path:
    (folder / "token").write_text(SECRETS["token"])
    file = folder / "pertoken.toml"
    file.write_text(f"""
[agent]
interval = "1s"
discover = false
probes = []
cloud_metadata = false
engines = ["{url}"]
access = [{{url = "{url}", token_file = "{folder}/token"}}, {{url = "http://gw:1", token_env = "PLANTED"}}]
[ship]
url = "postgresql://someone:{SECRETS["ship"]}@127.0.0.1:1/none"
every = "1s"
""")
    return file


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Everything that an agent with those settings leaves behind, by where it was found."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "credentials").mkdir()
    (folder / "credentials/pertoken.database-url").write_text(f"postgresql://a:{SECRETS['credential']}@127.0.0.1:1/b")
    environment = {**os.environ, "PLANTED": SECRETS["variable"], "CREDENTIALS_DIRECTORY": str(folder / "credentials")}
    asked: list[str] = []
    with answering(lambda connection, _: connection.sendall(http(CAPTURE)), asked=asked) as url:
        file = settings(folder, url)
        command = [sys.executable, "-m", "pertoken", "agent", "--db", str(folder / "db"), "--config", str(file)]
        with (folder / "log").open("wb") as log:
            agent = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                until(lambda: any(SECRETS["token"] in each for each in asked), "a request with the token")
                until(lambda: "127.0.0.1:1/none" in (folder / "log").read_text(), "the server that cannot be reached")
                family = [psutil.Process(agent.pid), *psutil.Process(agent.pid).children(recursive=True)]
                processes = "\n".join(" ".join(each.cmdline()) for each in family)
            finally:
                agent.terminate()
                agent.wait(60)
        found = {"log": (folder / "log").read_text(), "process list": processes}
        for path in (folder / "db").rglob("*"):
            found[f"file {path.name}"] = path.read_bytes().decode("latin-1") if path.is_file() else ""
        for name in (*OF_SETTINGS, *OF_DATABASE):
            where = ["--db", str(folder / "db")] if name in OF_DATABASE else []
            arguments = [*name.split(), "--config", str(file), *where]
            found[name] = CliRunner().invoke(main, arguments, env={"PLANTED": SECRETS["variable"]}).output
        yield found


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_seen_nowhere(traces: dict[str, str], name: str) -> None:
    assert all(traces[each] for each in ("log", "process list", "file telemetry.db", *OF_SETTINGS, *OF_DATABASE))
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
