"""The page of what is supported: which engines, gateways and devices, and what each was tested on."""

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import PageOrigin
from pertoken.agent.gateways import ADAPTERS as GATEWAYS
from pertoken.settings.values import PROBES

_LEVELS = {
    PageOrigin.LIVE: "tested live",
    PageOrigin.COLLECTOR: "on captures",
    PageOrigin.DOCUMENTS: "untested: written from documents",
}
_DEVICES = {
    "nvidia": ("NVIDIA GPUs and MIG instances", "nvidia-ml-py", "a stand-in for NVML in C"),
    "amd": ("AMD Instinct and their partitions", "amdsmi", "a stand-in for the library"),
    "gaudi": ("Intel Gaudi", "the CSV of `hl-smi`, which comes with its driver", "a stand-in for the program"),
}
"""By probe: the devices, the vendor's library, what it was tested on."""
_HEAD = """\
Which inference servers, gateways and devices can be measured, and what each was tested on. What holds for your host:

```sh
pertoken doctor
```

*Tested live*: a real server was run and its counts were compared with what was sent. *On captures*: a page that the
engine's own code wrote. *Untested*: written from documents; please send a page if its figures look wrong.

"""


def page(note: str) -> str:
    """Return the page; `note` marks it as generated."""
    assert set(_DEVICES) == set(PROBES), "a probe without a row"
    lines = [
        f"# What is supported\n\n{note}",
        _HEAD + "## Inference servers\n",
        "| engine | state | tokens |",
        "|---|---|---|",
    ]
    for adapter in ADAPTERS.values():
        tokens = f"unknown: {adapter.no_tokens.reason}" if adapter.no_tokens else "counted"
        link = f"[{adapter.kind}](engines.md#{adapter.kind.replace('.', '')})"
        lines.append(f"| {link} | {_LEVELS[adapter.tested_on]} | {tokens} |")
    lines += ["\n## Gateways, for tokens of tenants\n", "| gateway | state |", "|---|---|"]
    lines += [f"| {gateway.kind} | {_LEVELS[gateway.tested_on]} |" for gateway in GATEWAYS.values()]
    lines += ["\n## Devices\n", "| devices | library | state |", "|---|---|---|"]
    lines += [
        f"| {name} | {library} | on {tested}; no real device yet |" for name, library, tested in _DEVICES.values()
    ]
    lines.append("| CPUs of the host, RAPL, resctrl | the kernel's own files | tested live |")
    lines += [
        "\n## Where it runs\n",
        "| platform | state |",
        "|---|---|",
        "| Linux with Python 3.11 or newer, x86-64 | tested live |",
        "| systemd 252 (Debian 12), as a service | tested live, by an opt-in test (`PERTOKEN_E2E_SYSTEMD=1`) |",
        "| Kubernetes | manifests checked against published schemas; no cluster yet |",
        "| PostgreSQL, for a fleet | tested live |",
        "| other operating systems | not supported |",
    ]
    return "\n".join(lines) + "\n"
