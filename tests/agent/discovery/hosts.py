"""Hosts of made-up processes."""

from pertoken.agent.host.processes import Address, HostProcesses, Process

LOOPBACK = "127.0.0.1"
SERVE = ("/opt/venv/bin/python", "/opt/venv/bin/vllm", "serve", "org/model", "--port", "18000", "-tp", "2")


def host(*processes: Process, **more: object) -> HostProcesses:
    return HostProcesses({process.pid: process for process in processes}, **more)  # type: ignore[arg-type]


def vllm_tree(*listening: Address, argv: tuple[str, ...] = SERVE) -> tuple[Process, ...]:
    """Return what vLLM 0.32 starts: children title themselves, padded over the command line they had."""
    return (
        Process(10, 1, ("/bin/sh", "-c", " ".join(argv)), 900),
        Process(11, 10, argv, 1000, listening),
        Process(12, 11, ("VLLM::APIServer_0", "", "", ""), 2000),
        Process(13, 11, ("VLLM::EngineCore_DP0", "", ""), 2000, (Address(LOOPBACK, 40123),)),
        Process(14, 13, ("VLLM::Worker_TP0", ""), 3000),
        Process(15, 13, ("VLLM::Worker_TP1", ""), 3000),
        Process(16, 11, ("python", "-c", "from multiprocessing.resource_tracker import main;main(7)"), 1500),
        Process(99, 1, ("sshd",), 1, (Address("0.0.0.0", 22),)),
    )


def never(url: str) -> str | None:
    raise AssertionError(f"{url} was contacted")
