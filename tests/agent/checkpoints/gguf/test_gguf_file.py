from pathlib import Path

import gguf
import numpy as np
import pytest

from pertoken.agent.checkpoints.facts import Checkpoint, FileRefused
from pertoken.agent.checkpoints.gguf import _DTYPES, read_gguf, read_header
from tests.llama import write_model


def test_shape_and_exact_number_of_parameters_are_read_from_a_real_file(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf")
    exact = sum(int(tensor.n_elements) for tensor in gguf.GGUFReader(path).tensors)
    assert read_gguf(path) == Checkpoint(
        {"params_total": exact, "params_active": exact, "n_layers": 2, "n_kv_heads": 4, "head_dim": 16}, dtype="fp32"
    )


def moe(path: Path, blocks: int = 1, drafts: int = 0, **more: int) -> Path:
    """Return a mixture of these layers, and of `drafts` that only draft."""
    writer = gguf.GGUFWriter(path, "deepseek2")
    writer.add_block_count(blocks + drafts)
    writer.add_uint32("deepseek2.nextn_predict_layers", drafts)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(1)
    writer.add_key_length(576)
    writer.add_value_length(512)
    writer.add_kv_lora_rank(512)
    writer.add_rope_dimension_count(64)
    writer.add_expert_count(4)
    writer.add_expert_used_count(1)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    for name, value in more.items():
        writer.add_uint16(name.replace("_", "."), value)
    for block in range(blocks + drafts):
        writer.add_tensor(f"blk.{block}.ffn_up_exps.weight", np.zeros((4, 8, 8), np.float32))
    writer.add_tensor("output.weight", np.zeros((10, 10), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_experts_and_compressed_keys_are_understood(tmp_path: Path) -> None:
    shape = {
        **{"params_total": 356, "params_active": 164, "n_layers": 1, "n_kv_heads": 1, "head_dim": 288},
        **{"n_experts": 4, "n_experts_active": 1},
    }
    assert read_gguf(moe(tmp_path / "m.gguf")) == Checkpoint(shape, True, "int4")
    assert read_gguf(moe(tmp_path / "drafts.gguf", drafts=1)) == Checkpoint(shape, True, "int4")


def test_a_model_in_parts_is_the_sum_of_them(tmp_path: Path) -> None:
    first = moe(tmp_path / "m-00001-of-00002.gguf", blocks=2, split_count=2)
    with pytest.raises(FileNotFoundError):
        read_gguf(first)
    write_model(tmp_path / "m-00002-of-00002.gguf")
    other = read_gguf(tmp_path / "m-00002-of-00002.gguf").facts["params_total"]
    whole = set(read_header(first).elements) & set(read_header(tmp_path / "m-00002-of-00002.gguf").elements)
    assert whole == {"output.weight"}  # stands for itself once
    assert read_gguf(first).facts["params_total"] == 512 + other  # type: ignore[operator]
    with pytest.raises(FileRefused, match="one of 2 parts"):
        read_gguf(moe(tmp_path / "renamed.gguf", split_count=2))


def test_file_types_are_numbered_as_llama_cpp_numbers_them() -> None:
    names = {number: gguf.LlamaFileType(number).name for number in _DTYPES}
    words = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "int8": "Q8", "int4": "4_", "fp4": "MXFP4"}
    words |= {"int2": "Q2_", "int3": "Q3_", "int5": "Q5_", "int6": "Q6_"}
    assert all(words[dtype] in names[number] for number, dtype in _DTYPES.items())
