"""The service on a Debian of its own, under its own systemd: `PERTOKEN_E2E_SYSTEMD=1`, as root.

It needs debootstrap, systemd-nspawn and a package index. `PERTOKEN_E2E_ROOT` names a Debian root to copy instead.
The tests follow one host's life and run in their order: installed, watched over, upgraded, restarted, uninstalled.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pertoken import __version__
from tests.deploy.live_systemd.machine import UNIT, Machine, booted

pytestmark = pytest.mark.skipif(os.environ.get("PERTOKEN_E2E_SYSTEMD") != "1", reason="PERTOKEN_E2E_SYSTEMD=1 runs it")

ROOT = Path(__file__).parents[3]
CAPTURES = ROOT / "tests/captures"
PERTOKEN = "/opt/pertoken/bin/pertoken"
DATA = "/var/lib/pertoken"
MAX_EXPOSURE = 2.5
SECRET = "planted-p4ssw0rd"
NEXT_VERSION = "99.0.0"
SETTINGS = (
    '[agent]\ninterval = "{seconds}s"\ncloud_metadata = false\n'
    '[advisor]\npages_listen = "127.0.0.1:9404"\n'
    '[delivery]\nalerts_to = ["log", "slack:http://127.0.0.1:9000/services/T/B/x"]\n'
)
ADVISOR = "pertoken-advisor.service"
ALERT_S = 600.0
"""Time within which a stuck engine is an alert."""


def wheel(source: Path, out: Path) -> Path:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    return next(out.glob("pertoken-*.whl"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A host with pertoken in /opt, two people of whom one is in its group, and an engine of a third user."""
    folder = tmp_path_factory.mktemp("live")
    with booted(folder / "root") as host:
        wheels = host.root / "wheels"
        built = wheel(ROOT, wheels)
        get = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels), f"{built}[postgres]"]
        subprocess.run(get, check=True, capture_output=True)
        host.run("python3", "-m", "venv", "/opt/pertoken")
        host.run("/opt/pertoken/bin/pip", "install", "-q", "--no-index", "--find-links=/wheels", "pertoken[postgres]")
        for name in ("inside", "outside", "engine"):
            host.run("useradd", "--create-home", "--shell=/bin/bash", name)
        put_engine(host)
        yield host


def put_engine(host: Machine) -> None:
    pages = host.root / "opt/engine"
    (pages / "bin").mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "engine.py", pages / "bin/vllm")
    shutil.copy(Path(__file__).parent / "receiver.py", pages / "receiver.py")
    for page, name in (
        ("metrics-during.prom", "metrics"),
        ("v1-models.json", "v1-models"),
        ("version.json", "version"),
    ):
        shutil.copy(CAPTURES / f"vllm-0.32.0-{page}", pages / name)


def main_pid(host: Machine) -> int:
    return int(host.show("MainPID"))


def asked(host: Machine, query: str) -> list[int]:
    """The numbers that a query of the telemetry gives, asked by a process of the host."""
    script = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1], uri=True); print(*(v for v, in d.execute(sys.argv[2])))"
    )
    location = f"file:{DATA}/telemetry.db?mode=ro"
    found = host.run("python3", "-c", script, location, query).stdout.split()
    return [int(value) for value in found if value != "None"]


def ticks(host: Machine) -> list[int]:
    """The times of the ticks recorded until now."""
    return asked(host, "SELECT ts FROM host_sample ORDER BY ts")


def records(host: Machine, more: int = 3) -> bool:
    """Wait until the agent has recorded more ticks."""
    before = len(ticks(host))
    host.until(lambda: len(ticks(host)) >= before + more, f"{more} more ticks")
    return True


def settings(host: Machine, seconds: int) -> None:
    (host.root / "etc/pertoken/pertoken.toml").write_text(SETTINGS.format(seconds=seconds))


def samplers(host: Machine) -> list[str]:
    return host.run("pgrep", "-f", "pertoken.agent.sampler", check=False).stdout.split()


def test_it_is_installed_by_one_command_and_records(machine: Machine) -> None:
    done = machine.run(PERTOKEN, "agent", "install")
    assert f"records in {DATA}" in done.stdout
    assert (
        machine.show("ActiveState") == "active" and machine.run("systemctl", "is-enabled", UNIT).stdout == "enabled\n"
    )
    settings(machine, 1)
    machine.run("systemctl", "reload", UNIT)
    assert records(machine)
    user = machine.run("ps", "-o", "user=", "-p", str(main_pid(machine))).stdout.strip()
    assert user == "pertoken"


def test_its_exposure_is_low_as_systemd_rates_the_running_unit(machine: Machine) -> None:
    text = machine.run("systemd-analyze", "security", "--no-pager", UNIT).stdout
    overall = re.search(r"Overall exposure level for \S+: (\d\.\d)", text)
    assert overall and float(overall[1]) <= MAX_EXPOSURE, text
    print(overall[0])


def test_an_engine_of_another_user_is_found_under_the_rights_of_the_unit(machine: Machine) -> None:
    machine.run(
        "systemd-run", "--unit=engine", "--uid=engine", "/usr/bin/python3", "/opt/engine/bin/vllm",
        "serve", "meta-llama/Llama-3.1-8B-Instruct", "--port", "8000",
    )  # fmt: skip
    query = "SELECT sum(generated_tokens) FROM deployment_sample"
    machine.until(lambda: sum(asked(machine, query)) > 0, "tokens of the engine", 120)
    groups = machine.run("cat", f"/proc/{main_pid(machine)}/status").stdout
    rights = int(re.findall(r"CapEff:\s*(\w+)", groups)[0], 16)
    assert rights == 1 << 19 | 1 << 2, "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, and no other"


def test_only_members_of_its_group_see_the_figures(machine: Machine) -> None:
    machine.run("usermod", "-aG", "pertoken", "inside")
    seen = machine.run(PERTOKEN, "top", "--once", user="inside")
    assert "tiny-llama" in seen.stdout and "tok/s" in seen.stdout
    refused = machine.run(PERTOKEN, "top", "--once", "--db", DATA, user="outside", check=False)
    assert refused.returncode == 2 and "join its group" in refused.stderr and "Traceback" not in refused.stderr
    forbidden = machine.run("cat", f"{DATA}/telemetry.db", user="outside", check=False)
    assert "Permission denied" in forbidden.stderr
    release = machine.run(PERTOKEN, "agent", "release", "--db", DATA, user="inside", check=False)
    assert release.returncode == 1 and "run it with sudo" in release.stderr


def test_the_advisor_is_installed_by_one_command_and_has_no_right_of_the_agent(machine: Machine) -> None:
    done = machine.run(PERTOKEN, "advisor", "install")
    assert f"keeps advice in {DATA}/advice" in done.stdout
    machine.until(lambda: machine.show("ActiveState", ADVISOR) == "active", "running advisor")
    pid = machine.show("MainPID", ADVISOR)
    assert machine.run("ps", "-o", "user:32=", "-p", pid).stdout.strip() == "pertoken-advisor"
    rights = re.findall(r"Cap(?:Eff|Bnd):\s*(\w+)", machine.run("cat", f"/proc/{pid}/status").stdout)
    assert {int(mask, 16) for mask in rights} == {0}
    exposure = machine.run("systemd-analyze", "security", "--no-pager", ADVISOR).stdout
    overall = re.search(r"Overall exposure level for \S+: (\d\.\d)", exposure)
    assert overall and float(overall[1]) <= MAX_EXPOSURE, exposure
    write = ("runuser", "-u", "pertoken-advisor", "--", "touch", f"{DATA}/telemetry.db")
    assert "Permission denied" in machine.run(*write, check=False).stderr

    def serves() -> bool:
        return machine.run(PERTOKEN, "advisor", "status", user="inside", check=False).returncode == 0

    machine.until(serves, "advisor that serves")
    assert "active" in machine.run(PERTOKEN, "advisor", "status", user="inside").stdout


def test_a_stuck_engine_is_an_alert_in_a_chat_on_the_screen_and_in_the_week_within_ten_minutes(
    machine: Machine,
) -> None:
    machine.run("systemd-run", "--unit=receiver", "--uid=engine", "/usr/bin/python3", "/opt/engine/receiver.py")
    machine.run("chown", "-R", "engine", "/opt/engine")
    records(machine, 5)
    (machine.root / "opt/engine/stuck").touch()
    posts = machine.root / "opt/engine/posts"
    took = machine.until(
        lambda: posts.exists() and "alert stuck fired" in posts.read_text(), "message of the alert", ALERT_S
    )
    print(f"the alert came {took:.0f} s after the last token")
    message = json.loads(next(line for line in posts.read_text().splitlines() if "alert stuck fired" in line))
    assert set(message) == {"text", "blocks"} and "tiny-llama" in message["text"]
    shown = machine.run(PERTOKEN, "top", "--once", user="inside").stdout
    assert "stuck" in shown and "no token came" in shown and "alert stuck fired" in shown
    assert "stuck" in machine.run(PERTOKEN, "report", "--weekly", user="inside").stdout
    read_page = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9404/').read().decode())"
    page = machine.run("python3", "-c", read_page).stdout
    assert "tiny-llama" in page and "no token came" in page
    assert "firing" in machine.run(PERTOKEN, "alerts", "list", user="inside").stdout
    (machine.root / "opt/engine/stuck").unlink()


def test_only_members_of_the_advisors_group_decide(machine: Machine) -> None:
    set_price = (PERTOKEN, "prices", "set", "1", "--for", "cpu")
    refused = machine.run(*set_price, user="inside", check=False)
    assert refused.returncode != 0 and "Traceback" not in refused.stderr
    machine.run("usermod", "-aG", "pertoken-advisor", "inside")
    machine.run(*set_price, user="inside")


def test_the_drivers_are_released_and_taken_up_again(machine: Machine) -> None:
    pid = main_pid(machine)
    machine.until(lambda: bool(samplers(machine)), "sampler")
    assert "10 minutes" in machine.run(PERTOKEN, "agent", "release", "--db", DATA).stdout
    assert not samplers(machine) and records(machine)
    assert "reads the drivers again" in machine.run(PERTOKEN, "agent", "resume", "--db", DATA).stdout
    machine.until(lambda: bool(samplers(machine)), "sampler")
    assert main_pid(machine) == pid


def test_a_reload_rereads_the_settings_without_a_restart(machine: Machine) -> None:
    pid, mark = main_pid(machine), machine.cursor()
    settings(machine, 2)
    machine.run("systemctl", "reload", UNIT)
    machine.until(lambda: "recording every 2 s" in machine.log(mark), "line in the log")
    settings(machine, 1)
    machine.run("systemctl", "reload", UNIT)
    assert main_pid(machine) == pid and records(machine)


def test_it_is_restarted_after_a_kill(machine: Machine) -> None:
    pid, restarts = main_pid(machine), int(machine.show("NRestarts"))
    machine.run("kill", "-9", str(pid))
    took = machine.until(
        lambda: int(machine.show("NRestarts")) > restarts and machine.show("ActiveState") == "active", "restart"
    )
    assert main_pid(machine) != pid and records(machine)
    print(f"restarted {took:.0f} s after kill -9")
    machine.run(PERTOKEN, "db", "check", "--db", DATA)


def test_the_watchdog_restarts_an_agent_that_stands_still(machine: Machine) -> None:
    """With a shorter time than the unit's 3 minutes, by a drop-in as a person would write it."""
    drop_in = machine.root / f"etc/systemd/system/{UNIT}.d/short.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nWatchdogSec=15s\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)
    records(machine)
    pid, mark, restarts = main_pid(machine), machine.cursor(), int(machine.show("NRestarts"))
    machine.run("kill", "-STOP", str(pid))
    took = machine.until(lambda: int(machine.show("NRestarts")) > restarts, "restart", 200)
    machine.until(lambda: machine.show("ActiveState") == "active", "running agent")
    print(f"restarted {took:.0f} s after SIGSTOP with a watchdog of 15 s")
    assert "Watchdog timeout" in machine.log(mark) and main_pid(machine) != pid and records(machine)
    assert not machine.run("ps", "-p", str(pid), check=False).stdout.count("\n") > 1, "the one that stood still is gone"
    drop_in.unlink()
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)


def test_the_database_url_comes_as_a_credential_and_is_seen_nowhere(machine: Machine) -> None:
    store = machine.root / "etc/credstore"
    store.mkdir(mode=0o700, exist_ok=True)
    (store / "pertoken.database-url").write_text(f"postgresql://agent:{SECRET}@127.0.0.1:5/central\n")
    mark = machine.cursor()
    machine.run("systemctl", "restart", UNIT)
    machine.until(lambda: "127.0.0.1" in machine.log(mark), "the server's name in the log")
    pids = machine.run("pgrep", "-u", "pertoken").stdout.split()
    processes = "".join(machine.run("cat", f"/proc/{pid}/cmdline", f"/proc/{pid}/environ").stdout for pid in pids)
    shown = machine.run("systemctl", "show", UNIT).stdout + machine.run("systemctl", "status", UNIT).stdout
    assert SECRET not in processes + shown + machine.log()
    files = [file for file in (machine.root / DATA[1:]).rglob("*") if file.is_file()]
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]
    (store / "pertoken.database-url").unlink()
    machine.run("systemctl", "restart", UNIT)


def test_a_new_wheel_under_the_running_service_is_taken_up_by_a_restart(machine: Machine) -> None:
    source = machine.root.parent / "next"
    kept = shutil.ignore_patterns(".venv", ".git", ".*cache", "__pycache__")
    shutil.copytree(ROOT, source, ignore=kept)
    package = source / "pertoken/__init__.py"
    package.write_text(package.read_text().replace(f'"{__version__}"', f'"{NEXT_VERSION}"'))
    wheel(source, machine.root / "upgrade")
    pid, mark = main_pid(machine), machine.cursor()
    machine.run("sh", "-c", "/opt/pertoken/bin/pip install -q --no-index --no-deps /upgrade/*.whl")
    assert records(machine, 5) and main_pid(machine) == pid, "the old one goes on until it is restarted"
    assert "Traceback" not in machine.log(mark)
    machine.run(PERTOKEN, "agent", "install")
    assert records(machine) and NEXT_VERSION in machine.run(PERTOKEN, "--version").stdout
    machine.until(lambda: main_pid(machine) not in (0, pid), "new process")
    machine.run(PERTOKEN, "db", "check", "--db", DATA)


def test_the_service_returns_after_a_reboot_with_all_recorded_rows(machine: Machine) -> None:
    before = ticks(machine)
    machine.reboot()
    machine.until(lambda: machine.show("ActiveState") == "active", "running agent", 120)
    assert records(machine) and ticks(machine)[: len(before)] == before


def test_uninstalling_takes_the_service_away_and_keeps_the_data(machine: Machine) -> None:
    before = ticks(machine)
    refused = machine.run(PERTOKEN, "agent", "uninstall", "--delete-data", check=False)
    assert "`pertoken advisor uninstall` first" in refused.stderr
    gone = machine.run(PERTOKEN, "advisor", "uninstall")
    assert f"its data stay in {DATA}/advice" in gone.stdout
    assert machine.show("LoadState", ADVISOR) == "not-found" and (machine.root / DATA[1:] / "advice/advice.db").exists()
    done = machine.run(PERTOKEN, "agent", "uninstall")
    assert f"its data stay in {DATA}" in done.stdout
    assert machine.show("LoadState") == "not-found" and not machine.run("pgrep", "-u", "pertoken", check=False).stdout
    assert ticks(machine)[: len(before)] == before
    shown = machine.run(PERTOKEN, "top", "--once", "--db", DATA, user="inside")
    assert "tiny-llama" in shown.stdout or "no data" in shown.stdout.lower()
    machine.run(PERTOKEN, "agent", "uninstall", "--delete-data")
    assert not (machine.root / DATA[1:]).exists() and not (machine.root / "etc/pertoken").exists()
