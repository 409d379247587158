"""Imports that stay light, read from `sys.modules` of a fresh interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest


def loaded(*arguments: str) -> set[str]:
    """Return modules loaded by running pertoken's command line with these arguments."""
    code = (
        "import sys, contextlib, io\n"
        "sys.argv = ['pertoken', *sys.argv[1:]]\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    from pertoken.cli import main; main()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"textual", "sqlalchemy", "alembic", "psutil", "apscheduler", "http.client", "pynvml", "amdsmi"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["up", "--help"], ["prices", "set", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert not HEAVY & loaded(*arguments)


def test_showing_settings_loads_no_database_and_no_screen() -> None:
    assert not {"textual", "sqlalchemy", "alembic"} & loaded("config", "show")


def test_the_agent_loads_neither_alembic_nor_textual_nor_numpy() -> None:
    code = "import sys, pertoken.agent.daemon; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"textual", "alembic", "numpy", "amdsmi", "pynvml", "pertoken.advisor"} & set(done.stdout.split())


@pytest.mark.parametrize("root", ["pertoken", "benchmarks"])
def test_no_package_holds_more_than_twenty_five_files(root: str) -> None:
    top = Path(__file__).parents[1] / root
    folders = [top, *(folder for folder in top.rglob("*/") if folder.name != "__pycache__")]
    assert not {str(folder): count for folder in folders if (count := len(list(folder.glob("*.py")))) > 25}
