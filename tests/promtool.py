"""Debian's `promtool` (package prometheus): it checks metrics pages as Prometheus reads them."""

import shutil
import subprocess

PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
"""None where they are not installed."""


def complaints(page: str) -> str:
    """Return the complaints of `promtool check metrics` about a page; empty if it passes."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr + ("" if done.returncode == 0 else f"status {done.returncode}")
