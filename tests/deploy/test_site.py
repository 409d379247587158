"""The site builds without a warning, and each hand-written page begins with what it is for and how to do it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def pages_of(nav: list[object]) -> list[str]:
    found: list[str] = []
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            found += pages_of(value) if isinstance(value, list) else [str(value)]
    return found


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "install/index.html").read_text()
    assert not re.findall(r'(?:src|href)="https?://(?!github\.com/pertoken)[^"]*\.(?:js|css|woff2?)"', home)


def test_each_page_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(pages_of(nav)) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("name", ["install.md", "security.md", "faq.md", "supported.md"])
def test_a_page_begins_with_what_it_is_for_and_the_shortest_way_to_do_it(name: str) -> None:
    first = (ROOT / "docs" / name).read_text().splitlines()[:16]
    assert first[0].startswith("# ") and any(line.startswith("```sh") for line in first)
