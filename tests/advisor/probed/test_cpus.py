"""A deployment on CPUs can be forecast once a probe measured it."""

import json
import time
from pathlib import Path

from pertoken.advisor.present import present
from pertoken.advisor.probed import keep
from pertoken.catalog.market import load_market
from pertoken.evidence import OperatingPoint
from pertoken.forecast.formats import cpu_kernels
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import DeviceRow
from tests.values import HOST, served_at

CPU = DeviceRow(5, HOST, "cpu", "CPU-5", None, "Some CPU")
FACTS = {"params_total": 10**9, "params_active": 10**9, "n_layers": 16, "n_kv_heads": 8, "head_dim": 64}
URL = "http://127.0.0.1:8000"
POINTS = [
    OperatingPoint(1, 1.0, None, 100.0, 1.0, ttft_s=2.1, probed=True),
    OperatingPoint(2, 1.0, None, 500.0, 1.0, ttft_s=10.1, probed=True),
    OperatingPoint(3, 1.0, 0.12, 100.0, 48.0, cached_share=1.0, probed=True),
]


def test_a_probe_makes_the_cpus_of_its_deployment_hardware_of_the_market(tmp_path: Path) -> None:
    knobs = json.dumps({"weight_dtype": "fp16"})
    where, now = served_at(tmp_path, URL, device=CPU, model_facts=json.dumps(FACTS), knobs=knobs), int(time.time())
    before = present(open_store(where), load_market(), 3600, now + 1)
    assert before.context.market.accelerator("Some CPU") is None
    keep(where, 8, now - 60, now - 30, URL, "someone", POINTS, {})
    state = present(open_store(where), load_market(), 3600, now + 1)
    (deployment,) = state.fleet.deployments
    accelerator = state.context.market.accelerator(deployment.accelerator)
    assert accelerator is not None and accelerator.name == "Some CPU"
    assert round(accelerator.measured[cpu_kernels(deployment.engine), "fp16"].flops / 1e9) == 100
