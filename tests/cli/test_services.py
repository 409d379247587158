from pathlib import Path

import pytest

from pertoken.agent.systemd import ADVISOR
from pertoken.cli.agent import install_service
from pertoken.errors import BadInput
from tests.cli.builders import run


@pytest.mark.parametrize("program", ["agent", "advisor"])
def test_an_installation_is_shown_before_it_is_done(program: str) -> None:
    done = run(program, "install", "--dry-run")
    assert done.exit_code == 0
    assert f"# /etc/systemd/system/pertoken-{program}.service" in done.stdout
    assert f"$ systemctl restart pertoken-{program}.service" in done.stdout


def test_a_reason_against_an_installation_is_raised_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pertoken.agent.systemd.hidden_from_service", lambda _: None)
    with pytest.raises(BadInput, match="holds advice"):
        install_service(ADVISOR, dry_run=False, refused="advice.db holds advice")
