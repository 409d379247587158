"""Configuration folders with rules in them."""

from pathlib import Path

from pertoken.config import Settings, load
from tests.advisor.sources import source


def settings(folder: Path, text: str = "") -> Settings:
    """Settings of a configuration file in `folder`."""
    (folder / "pertoken.toml").write_text(text)
    return load(folder / "pertoken.toml", {})


def written(file: Path, rule_id: str = "own-rule", mode: int = 0o644, **more: str) -> Path:
    """Return a file with one rule."""
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    file.write_text(source(more.pop("body", 'yield skip("nothing", "found nothing")'), rule_id=rule_id, **more))
    file.chmod(mode)
    return file
