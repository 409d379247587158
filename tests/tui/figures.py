"""Reports of a fleet with all that screens show and of an empty one, with their lines."""

from dataclasses import replace

from pertoken.costs.ledger import BillTotal, KindDollars
from pertoken.costs.report.lines import (
    DeploymentLine,
    DeviceLine,
    EventLine,
    FleetReport,
    HostLine,
    HostUse,
    MissingMetric,
)
from pertoken.window.figures import EngineCounts

NOW = 1_800_000_000
USD = 1_000_000_000
GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"
HOSTILE = "[/b]evil\x1b[31m\u202emodel[red]"


def host(host_id: int, name: str, age_s: int | None = 4) -> HostLine:
    return HostLine(
        host_id=host_id,
        name=name,
        cpu_util=0.124,
        load=3.2,
        memory_used_bytes=121 * GIB,
        memory_bytes=512 * GIB,
        agent_cpu_share=0.004,
        agent_rss_bytes=61 * 2**20,
        age_s=age_s,
        interval_s=10,
        memory_traffic_bytes_s=38.2 * GIB,
    )


def device(device_id: int, host: str, slot: int | None, held_by: tuple[str, ...]) -> DeviceLine:
    return DeviceLine(
        device_id=device_id,
        host=host,
        kind="gpu",
        name=H100,
        slot=slot,
        util=0.83,
        power_w=512.4,
        memory_used_bytes=71 * GIB,
        memory_bytes=80 * GIB,
        nano_usd_per_hour=2_490_000_000,
        held_by=held_by,
        age_s=4,
    )


CHAT = DeploymentLine(
    deployment_id=11,
    model="meta-llama/Llama-3.1-70B-Instruct",
    engine="vllm",
    host="gpu-a",
    devices=(f"{H100} #0", f"{H100} #1"),
    generated_tok_s_now=812.4,
    prompt_tok_s_now=6120.0,
    running_now=14.2,
    waiting_now=0.0,
    generated_tokens=2_411_022,
    prompt_tokens=19_200_411,
    cached_tokens=9_002_113,
    busy=0.87,
    power_w=1024.8,
    nano_usd=4_980_000_000,
    idle_nano_usd=1_350_000_000,
    requests=1_800,
    kinds=KindDollars(1_100_000_000, 30_000_000, 2_500_000_000, 0, 1_350_000_000, 400_000_000, 2_300_000_000),
    nano_usd_per_mtok=230_440_000,
    nano_usd_per_generated_mtok=2_065_500_000,
    nano_usd_per_hour=4_980_000_000,
    ttft_p95_s=0.412,
    tpot_p50_s=0.0182,
    spark=(None, None, 410.0, 620.0, 700.0, 655.0, None, 702.0, 812.0, 640.0, 300.0, 0.0, 0.0, 512.0, 812.4),
    incomplete=False,
    coverage=0.998,
    age_s=4,
    fault=None,
    counts=EngineCounts(
        preemptions=7,
        ended=(("stop", 5120), ("length", 902)),
        counted=(("requests_failed", 3),),
        prefix_hit_rate=0.469,
        spec_acceptance_rate=0.61,
        spec_acceptance_length=2.83,
        mfu=0.094,
        mbu=0.612,
    ),
)
RESTARTED = replace(
    CHAT,
    deployment_id=12,
    model="Qwen/Qwen3-8B",
    engine="llama.cpp",
    host="gpu-b",
    devices=(f"{H100} #0",),
    generated_tok_s_now=41.0,
    running_now=0.6,
    waiting_now=3.0,
    busy=0.12,
    nano_usd_per_mtok=8_112_000_000,
    ttft_p95_s=1.84,
    incomplete=True,
    coverage=0.61,
    late=("generated_tokens",),
)
SILENT = replace(
    CHAT,
    deployment_id=13,
    model=HOSTILE,
    host="gpu-b",
    devices=(f"{H100} #1",),
    generated_tok_s_now=None,
    prompt_tok_s_now=None,
    running_now=None,
    waiting_now=None,
    busy=0.0,
    power_w=None,
    nano_usd=None,
    nano_usd_per_mtok=None,
    nano_usd_per_generated_mtok=None,
    nano_usd_per_hour=None,
    ttft_p95_s=None,
    tpot_p50_s=None,
    counts=EngineCounts(),
    spark=(None,) * 15,
    age_s=190,
    fault="http://127.0.0.1:8001/metrics answered 404. Start llama-server with --metrics.",
)
MEASURED = replace(
    device(21, "gpu-a", 0, (CHAT.model,)),
    values={
        "sm_active_1e4": 0.62,
        "sm_occupancy_1e4": 0.18,
        "tensor_active_1e4": 0.27,
        "dram_active_1e4": 0.71,
        "nvlink_rx_mib_s": 1.3 * GIB,
        "nvlink_tx_mib_s": 0.9 * GIB,
        "sm_clock_mhz": 1980.0,
        "temperature_c": 61.0,
    },
    power_source="average, gpu",
)
"""A GPU whose driver reports every metric."""


def use(host: HostLine, models: tuple[str, ...] = (), accelerators: int = 2) -> HostUse:
    return HostUse(
        host=host,
        accelerators=accelerators,
        util=0.83,
        sm_active=0.62,
        dram_active=0.71,
        power_w=1024.8,
        generated_tok_s_now=812.4,
        nano_usd_per_hour=4_980_000_000,
        nano_usd_per_mtok=230_440_000,
        spark=CHAT.spark,
        bill=BillTotal(4_980_000_000, 3_130_000_000, 1_350_000_000, 0, 500_000_000),
        models=models,
    )


RICH = FleetReport(
    now_ts=NOW,
    window_s=3600,
    source="/var/lib/pertoken",
    hosts=(host(1, "gpu-a"), host(2, "gpu-b")),
    uses=(use(host(1, "gpu-a"), (CHAT.model,)), use(host(2, "gpu-b"), (RESTARTED.model, HOSTILE), 3)),
    devices=(
        MEASURED,
        device(22, "gpu-a", 1, (CHAT.model,)),
        replace(device(23, "gpu-b", 0, (RESTARTED.model,)), util=None, power_w=None),
        replace(device(24, "gpu-b", 1, (HOSTILE, "other processes")), nano_usd_per_hour=None, age_s=190),
        replace(device(25, "gpu-b", 2, ()), util=0.0, power_w=71.2, memory_used_bytes=600 * 2**20),
    ),
    deployments=(CHAT, RESTARTED, SILENT),
    bill=BillTotal(
        paid=9_960_000_000, busy=4_631_400_001, idle=2_838_599_999, other=249_000_000, unallocated=2_241_000_000
    ),
    nano_usd_per_hour=9_960_000_000,
    unpriced_n=1,
    unpriced_devices=(f"{H100} #1",),
    nano_usd_per_mtok=412_330_000,
    generated_tok_s_now=853.4,
    power_w=1096.0,
    incomplete=True,
    missing=(
        MissingMetric(f"{H100} #0", "util", "unsupported", "the driver does not report it under MIG", None, 23),
        MissingMetric(
            f"{H100} #0", "power", "denied", "/dev/nvidia0 may not be read", "Add the agent to group video.", 23
        ),
    ),
    events=(
        EventLine(NOW - 190, "engine_unreadable", "http://127.0.0.1:8001/metrics answered 404", 19),
        EventLine(NOW - 1260, "engine_restart", "Qwen/Qwen3-8B restarted on gpu-b", 1),
        EventLine(NOW - 3300, "agent_start", "agent 0.1.0 started on gpu-a [b]!", 1),
        EventLine(NOW - 3400, "agent_start", "agent 0.1.0 started on gpu-b", 1),
    ),
    hints=(
        f"{HOSTILE} cannot be read: http://127.0.0.1:8001/metrics answered 404. Start llama-server with --metrics.",
        f"No price is known for {H100}: set what an hour of it costs you, in dollars, with "
        f'`pertoken prices set DOLLARS --for "{H100}"`.',
    ),
    bill_observed=0.979,
    coverage=0.866,
)
BARE = FleetReport(
    now_ts=NOW,
    window_s=3600,
    source="/home/me/.local/share/pertoken",
    hosts=(host(1, "laptop"),),
    uses=(replace(use(host(1, "laptop"), (), 0), bill=None, nano_usd_per_mtok=None, power_w=None),),
    devices=(
        DeviceLine(
            device_id=31,
            host="laptop",
            kind="cpu",
            name="AMD EPYC 9354P 32-Core Processor",
            slot=None,
            util=0.124,
            power_w=None,
            memory_used_bytes=None,
            memory_bytes=None,
            nano_usd_per_hour=None,
            held_by=(),
            age_s=4,
        ),
    ),
    deployments=(),
    bill=None,
    nano_usd_per_hour=None,
    unpriced_n=0,
    unpriced_devices=("AMD EPYC 9354P 32-Core Processor",),
    nano_usd_per_mtok=None,
    generated_tok_s_now=None,
    power_w=None,
    incomplete=False,
    missing=(
        MissingMetric(
            "AMD EPYC 9354P 32-Core Processor",
            "power",
            "denied",
            "/sys/class/powercap is readable by root only",
            "Run the agent as a service, or give it read access.",
            31,
        ),
    ),
    events=(),
    hints=(
        "No inference server was found on this host. Start one (vLLM, or llama-server with --metrics), or name "
        "one that runs elsewhere: `pertoken agent --engine http://HOST:PORT`.",
    ),
)
