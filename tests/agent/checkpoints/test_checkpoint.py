"""A model as its server's process sees it, and files that are not what they should be."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pertoken.agent.checkpoints.checkpoint import read_checkpoint, read_files
from pertoken.agent.checkpoints.facts import Checkpoint
from tests.agent.checkpoints.folders import LLAMA, header, write
from tests.examples import examples
from tests.llama import write_model

ME = os.getpid()


def test_a_folder_and_a_file_are_read_through_the_process_that_serves_them(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", LLAMA, model={"a": ("BF16", [2, 3])})
    checkpoint = read_checkpoint(str(folder), ME)
    assert (checkpoint.facts["params_total"], checkpoint.dtype, checkpoint.reason) == (6, "bf16", None)
    assert read_checkpoint(str(write_model(tmp_path / "tiny.gguf")), ME).dtype == "fp32"


def test_files_of_this_process_are_read_by_their_path_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", LLAMA, model={"a": ("BF16", [2, 3])})
    assert read_files(folder) == read_checkpoint(str(folder), ME)
    assert read_files(tmp_path / "none").reason == f"{tmp_path}/none: no such file or folder"


def test_a_relative_path_is_relative_to_the_servers_folder(tmp_path: Path) -> None:
    write(tmp_path / "model", LLAMA)
    server = subprocess.Popen([sys.executable, "-c", "input()"], cwd=tmp_path, stdin=subprocess.PIPE)
    try:
        assert read_checkpoint("model", server.pid).facts["n_layers"] == 2
    finally:
        server.communicate()


@pytest.mark.parametrize(
    ("variables", "hub"),
    [
        ({"HOME": "{}"}, ".cache/huggingface/hub"),
        ({"HOME": "/x", "XDG_CACHE_HOME": "{}"}, "huggingface/hub"),
        ({"HOME": "/x", "HF_HOME": "{}"}, "hub"),
        ({"HF_HOME": "/x", "HF_HUB_CACHE": "{}"}, ""),
    ],
)
def test_a_repository_is_found_where_the_servers_environment_keeps_it(
    tmp_path: Path, variables: dict[str, str], hub: str
) -> None:
    repository = tmp_path / hub / "models--org--tiny"
    (repository / "snapshots").mkdir(parents=True)
    environment = {name: value.format(tmp_path) for name, value in variables.items()}
    waits = [sys.executable, "-c", "print(flush=True); input()"]
    server = subprocess.Popen(waits, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None and server.stdout.readline()  # it runs: the environment is its own
        assert read_checkpoint("org/tiny", server.pid).facts == {}
        write(repository / "snapshots" / "abc", LLAMA)
        assert read_checkpoint("org/tiny", server.pid).facts["n_layers"] == 2
        assert read_checkpoint("hf://org/tiny", server.pid).facts["n_layers"] == 2
        write(repository / "snapshots" / "def", {**LLAMA, "num_hidden_layers": 3})
        assert read_checkpoint("org/tiny", server.pid).facts == {}  # which of the two is served is unknown
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("def")
        assert read_checkpoint("org/tiny", server.pid).facts["n_layers"] == 3
    finally:
        server.communicate(b"\n")


def _no_config(folder: Path) -> Path:
    (folder / "config.json").unlink()
    return folder


def _config(text: str) -> Callable[[Path], Path]:
    def change(folder: Path) -> Path:
        (folder / "config.json").write_text(text)
        return folder

    return change


def _weights(body: bytes) -> Callable[[Path], Path]:
    def change(folder: Path) -> Path:
        (folder / "model.safetensors").write_bytes(body)
        return folder

    return change


def _pipe(folder: Path) -> Path:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    return folder


def _endless(folder: Path) -> Path:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    return folder


def _elsewhere(folder: Path) -> Path:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../etc/x.safetensors"}}')
    return folder


@pytest.mark.parametrize(
    "broken",
    [
        _no_config,
        _config("[]"),
        _config("{"),
        _config("[" * 100_000),
        _config('{"a": "' + "x" * 5_000_000 + '"}'),
        _weights(b"short"),
        _weights(pack("<Q", 2**63)),
        _weights(pack("<Q", 100) + b"{}"),
        _weights(header({"a": ("BF16", [2**40, 2**40])})),
        _weights(header({"a": ("BF16", [-1])})),
        _pipe,
        _endless,
        _elsewhere,
        lambda folder: folder / "nowhere",
    ],
)
def test_files_that_are_not_what_they_should_be_are_a_reason_and_nothing_is_known(
    tmp_path: Path, broken: Callable[[Path], Path]
) -> None:
    path = broken(write(tmp_path / "model", LLAMA, model={"a": ("BF16", [2, 3])}))
    checkpoint = read_checkpoint(str(path), ME)
    assert checkpoint.reason
    assert checkpoint == Checkpoint(reason=checkpoint.reason)


def test_content_of_a_file_is_never_in_the_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("s3cret: not JSON")
    assert "s3cret" not in (read_checkpoint(str(tmp_path), ME).reason or "")


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 20_000), at=st.integers(0, 9_000), byte=st.integers(0, 255))
def test_a_damaged_gguf_header_is_refused_or_read_and_never_fails(tmp_path: Path, cut: int, at: int, byte: int) -> None:
    path = tmp_path / "tiny.gguf"
    if not path.exists():
        write_model(path)
    body = bytearray(path.read_bytes()[: max(cut, 8)])
    body[min(at, len(body) - 1)] = byte
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(body)
    checkpoint = read_checkpoint(str(damaged), ME)
    assert all(isinstance(value, int) and value > 0 for value in checkpoint.facts.values())
