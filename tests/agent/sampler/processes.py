"""Samplers as processes, and how long they may take."""

import psutil

from pertoken.agent.sampler.client import Sampler
from tests.standin_nvml import Machine

PATIENCE_S = 60.0
NOTHING = Machine(absent=True)


def process_of(child: Sampler) -> psutil.Process:
    assert child.pid is not None
    return psutil.Process(child.pid)
