"""Headers of safetensors files."""

from pathlib import Path
from struct import pack

import pytest

from pertoken.agent.checkpoints.checkpoint import Tensor, read_tensors
from pertoken.agent.checkpoints.facts import FileRefused
from tests.agent.checkpoints.folders import LLAMA, header, write


def test_a_folder_without_such_files_has_no_tensors(tmp_path: Path) -> None:
    assert read_tensors(tmp_path) is None


def test_tensors_of_all_files_are_read(tmp_path: Path) -> None:
    folder = write(tmp_path, LLAMA, a={"one": ("BF16", [2, 3])}, b={"two": ("F32", [])})
    assert read_tensors(folder) == (Tensor("one", "BF16", (2, 3)), Tensor("two", "F32", ()))
    assert [tensor.stored for tensor in read_tensors(folder) or ()] == [6, 1]


def test_a_file_that_is_missing_or_broken_refuses_the_sum_of_the_others(tmp_path: Path) -> None:
    folder = write(tmp_path, LLAMA, a={"one": ("BF16", [2, 3])}, b={"two": ("F32", [])})
    (folder / "b.safetensors").write_bytes(header({"two": ("F32", [])})[:-5])
    with pytest.raises(FileRefused, match=r"b\.safetensors"):
        read_tensors(folder)
    (folder / "b.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        read_tensors(folder)


@pytest.mark.parametrize("row", ['{"dtype": "F32"}', '{"dtype": "F32", "shape": [-1]}', "3"])
def test_a_tensor_that_cannot_be_refuses_the_file(tmp_path: Path, row: str) -> None:
    body = f'{{"one": {row}}}'.encode()
    (tmp_path / "model.safetensors").write_bytes(pack("<Q", len(body)) + body)
    with pytest.raises(FileRefused):
        read_tensors(tmp_path)
