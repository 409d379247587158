"""What a host's processes spell: command lines, environments, cgroups, /proc files; none of it makes a look fail."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.host import processes
from pertoken.agent.host.identity import read_dmi
from pertoken.agent.host.owners import container_of, workload_of
from pertoken.agent.host.processes import docker_ports, rootless_ports
from pertoken.catalog.knobs import (
    model_argument,
    names_port,
    port_argument,
    read_absent,
    read_argv,
    read_environment,
    rendezvous_argument,
    table,
    tls_argument,
    variables,
)
from tests.examples import examples
from tests.fuzz.damage import TEXTS, bounded, damaged

ENGINES = sorted({row.engine for row in table().knobs} | set(ADAPTERS))
FLAGS = sorted({each for row in table().knobs for each in row.flags} | {"--model", "--port", "--tensor-parallel-size"})
WORDS = st.one_of(
    st.sampled_from(FLAGS), st.sampled_from(TEXTS), st.text(max_size=20), st.integers().map(str),
    st.builds("{}={}".format, st.sampled_from(FLAGS), st.text(max_size=20)),
    st.sampled_from(["serve", "-", "--", "--=", "=", "{}", '{"a":', "[" * 5000, "9" * 5000, "-1", "auto", "a/x"]),
)  # fmt: skip


@settings(max_examples=examples(60))
@given(argv=st.lists(WORDS, max_size=12))
def test_any_command_line_is_read_as_far_as_it_is_understood(argv: list[str]) -> None:
    with bounded():
        for engine in ENGINES:
            found = read_argv(engine, argv) | read_absent(engine, argv)
            assert None not in found.values()
            model_argument(engine, argv), names_port(engine, argv), rendezvous_argument(engine, argv)
            port = port_argument(engine, argv)
            assert port is None or isinstance(port, int)
            tls_argument(engine, argv)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_with_any_value_is_read_as_far_as_it_is_understood(flag: str) -> None:
    for value in (*TEXTS, "[" * 5000, "{" * 5000, '{"a":' * 5000, "9" * 5000, '{"method": 7}', "null", "[]"):
        for argv in (["serve", flag, value], ["serve", f"{flag}={value}"]):
            for engine in ENGINES:
                read_argv(engine, argv)


@settings(max_examples=examples(100))
@given(value=st.one_of(st.sampled_from(TEXTS), st.text(max_size=30)))
def test_any_value_in_an_environment_is_read_as_far_as_it_is_understood(value: str) -> None:
    for engine in ENGINES:
        read_environment(engine, dict.fromkeys(variables(engine), value))
    workload_of(dict.fromkeys(("KUBERNETES_SERVICE_HOST", "HOSTNAME", "POD_NAME"), value), lambda: value, "host")


FORWARDERS = (
    ["docker-proxy", "-proto", "tcp", "-host-ip", "0.0.0.0", "-host-port", "8000", "-container-ip", "172.17.0.2",
     "-container-port", "80"],
    ["pasta", "--netns", "/run/netns/a", "-t", "127.0.0.1/8080:80,8081", "7"],
    ["slirp4netns", "7", "tap0"],
    ["rootlessport", "x"],
)  # fmt: skip


@pytest.mark.parametrize("argv", FORWARDERS, ids=lambda argv: argv[0])
def test_command_lines_of_forwarders_are_read_as_far_as_they_are_understood(argv: list[str]) -> None:
    chance = random.Random(argv[0])
    for _ in range(400):
        words = list(argv)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(words))
            if chance.random() < 0.3:
                del words[at]
            else:
                words[at] = chance.choice((*TEXTS, "99999999", "::1", "256.1.1.1", "127.0.0.1/", "-t"))
            if not words:
                break
        docker_ports([tuple(words)])
        rootless_ports(
            {3: tuple(words), 7: ("a",)}, {3: "net:[1]", 7: "net:[2]"}, "net:[1]", lambda _: frozenset(), lambda _: 7
        )


STAT = b"7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 1 1 0 0 20 0 1 0 5000 1000 10 18446744073709551615 0 0 0\n"
FILES = {
    "cgroup": b"0::/system.slice/docker-" + b"a1" * 32 + b".scope\n1:name=a:/pod01234567-0123-0123-0123-0123456789ab/"
    + b"0f" * 32 + b"\n",
    "status": b"Name:\ta\nNSpid:\t100\t7\nCapEff:\t0000000000000000\n",
    "maps": b"7f00-7f01 r-xp 00000000 08:01 123 /usr/lib/libllama.so (deleted)\n",
    "environ": b"HOME=/root\0PORT=8000\0",
    "cmdline": b"vllm\0serve\0model\0",
    "net/tcp": b"  sl\n   0: 0100007F:1F40 00000000:0000 0A 0:0 0:0 0 0 0 12345 1 0 100\n",
    "net/tcp6": b"  sl\n   0: " + b"0" * 32 + b":1F40 " + b"0" * 32 + b":0000 0A 0:0 0:0 0 0 0 12346 1\n",
}  # fmt: skip
READERS: dict[str, Callable[[Path], Any]] = {
    "cgroup": lambda proc: container_of(7, proc),
    "status": lambda proc: container_of(7, proc),
    "maps": lambda proc: processes.mapped_files(7),
    "environ": lambda proc: processes.environment(7, ["PORT"]),
    "cmdline": lambda proc: processes._argv(7),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_a_process_with_damaged_bytes_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    (tmp_path / "7").mkdir()
    for other, body in FILES.items():
        if "/" not in other:
            (tmp_path / "7" / other).write_bytes(body)
    for body in damaged(FILES[name], name, 250):
        (tmp_path / "7" / name).write_bytes(body)
        with bounded():
            READERS[name](tmp_path)


@pytest.mark.parametrize("name", ["net/tcp", "net/tcp6"])
def test_a_list_of_sockets_with_damaged_lines_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "Path", lambda _: tmp_path)
    (tmp_path / "7/net").mkdir(parents=True)
    (tmp_path / "7" / name).write_bytes(FILES[name])
    assert [each.port for each in processes.listening_of("7").values()] == [8000]
    for body in damaged(FILES[name], name, 250):
        (tmp_path / "7" / name).write_bytes(body)
        processes.listening_of("7")


def test_damaged_firmware_files_are_read_without_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for body in damaged(b"Amazon EC2\n", "dmi", 50):
        (folder / "sys_vendor").write_bytes(body)
        assert all(value is None or isinstance(value, str) for value in read_dmi(tmp_path).values())
