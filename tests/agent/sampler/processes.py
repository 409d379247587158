"""Samplers as processes, and how long they may take."""

import psutil

from pertoken.agent.sampler.client import Sampler
from tests.standin_nvml import Machine

PATIENCE_S = 60.0
NOTHING = Machine(absent=True)


def pid_of(child: Sampler) -> int | None:
    """Return the process id of the child, None while there is none."""
    return child._child.process.pid if child._child else None


def process_of(child: Sampler) -> psutil.Process:
    pid = pid_of(child)
    assert pid is not None
    return psutil.Process(pid)
