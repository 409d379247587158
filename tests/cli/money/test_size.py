import json
from pathlib import Path

from tests.agent.checkpoints.folders import write
from tests.cli.builders import run

ASKED = ("--requests-per-s", "5", "--prompt", "1000", "--output", "250", "--tpot-p95", "60ms")
"""A workload, but for its TTFT."""
SOME = ("--providers", "lambda,bedrock", "--formats", "fp8")


def test_sizing_needs_no_database_and_names_price_fit_and_latency_of_the_cheapest() -> None:
    done = run("size", "llama-3.1-70b", *ASKED, *SOME, "--ttft-p95", "800ms", "--rows", "2")
    assert done.exit_code == 0
    for words in ("API, by the token", "replicas ", "price ", "TTFT p95 about", "KV cache", "--quantization fp8"):
        assert words in done.output
    assert "more expensive ones (--rows, or --json for all)" in done.output


def test_nothing_that_holds_the_slo_exits_with_3_and_the_nearest_miss() -> None:
    done = run("size", "llama-3.1-70b", *ASKED, *SOME, "--ttft-p95", "5ms")
    assert done.exit_code == 3 and "Nothing holds the SLO. The nearest miss:" in done.output
    printed = json.loads(run("size", "llama-3.1-70b", *ASKED, *SOME, "--ttft-p95", "5ms", "--json").stdout)
    assert printed["nearest_miss"]["over"] > 1 and [choice["kind"] for choice in printed["choices"]] == ["serverless"]


def test_a_folder_with_a_config_describes_a_model_that_is_not_in_the_catalog(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 14336,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    done = run("size", str(folder), *ASKED, *SOME, "--ttft-p95", "800ms")
    assert done.exit_code == 0 and done.output.startswith("ours at 5 requests/s")


def test_a_config_that_is_not_understood_is_refused_with_the_numbers_that_would_do(tmp_path: Path) -> None:
    config = {"model_type": "strange", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = ("size", str(tmp_path), *ASKED, *SOME, "--ttft-p95", "800ms")
    refused = run(*asked)
    assert refused.exit_code == 2
    for words in (
        "which layers of a strange",
        "params_total, params_active, n_kv_heads, kv_values by --param",
        "safetensors",
    ):
        assert words in refused.output
    given = ("params_total=8e9", "params_active=8e9", "n_kv_heads=8", "kv_values=65536")
    params = [word for number in given for word in ("--param", number)]
    assert run(*asked, *params).exit_code == 0
    for wrong in ("size=8", "params_total=many", "params_total=0", "params_total=1.5", "n_layers=1e99"):
        assert run(*asked, "--param", wrong).exit_code == 2


def test_a_mixture_whose_active_experts_are_not_known_is_not_sized_as_a_dense_model(tmp_path: Path) -> None:
    config = {"model_type": "qwen3", "num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 64, "head_dim": 8}
    write(tmp_path, {**config, "moe_expert_num": 8}, model={"layers.0.mlp.experts.0.w": ("BF16", [640, 640])})
    refused = run("size", str(tmp_path), *ASKED, *SOME, "--ttft-p95", "800ms")
    assert refused.exit_code == 2 and "Give params_active by --param" in refused.output


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    for wrong, words in (
        (("llama-3-700b", "--ttft-p95", "1s"), "near: meta-llama/Llama-3.3-70B"),
        (("llama-3.1-70b", "--ttft-p95", "800"), "write it with a unit"),
        (("llama-3.1-70b", "--ttft-p95", "0s"), "must be above 0"),
        (
            ("llama-3.1-70b", "--ttft-p95", "1s", "--providers", "nowhere"),
            "is not a provider of the catalog; known are aws",
        ),
        (("llama-3.1-70b", "--ttft-p95", "1s", "--formats", "fp9"), "is not a weight format; known are bf16"),
        (("llama-3.1-70b", "--ttft-p95", "1s", "--formats", ","), "the list is empty"),
    ):
        refused = run("size", *wrong, *ASKED)
        assert refused.exit_code == 2 and words in refused.output


def test_images_add_their_tokens_to_the_prompt(tmp_path: Path) -> None:
    asked = ("--ttft-p95", "2s", "--rows", "1", "--images", "1.5")
    sized = run("size", "Qwen/Qwen3-VL-8B-Instruct", *ASKED, *SOME, *asked, "--json")
    printed = json.loads(sized.stdout)["workload"]
    assert (printed["prompt_tokens"], printed["images"], printed["image_pixels"]) == (
        1000 + 1.5 * 1024,
        1.5,
        [1024, 1024],
    )
    shown = run("size", "Qwen/Qwen3-VL-8B-Instruct", *ASKED, *SOME, *asked, "--image-size", "640x480")
    assert "1450 prompt" in shown.output and "tokens of 1.5 images of 640x480 pixels" in " ".join(shown.output.split())


def test_images_of_a_model_without_a_known_encoder_are_refused_with_the_way_out() -> None:
    for model, wrong, words in (
        ("llama-3.1-70b", ("--images", "1"), "add them to the prompt tokens yourself"),
        ("qwen3-vl-8b", ("--images", "1", "--image-size", "large"), "--image-size large: not a width and a height"),
    ):
        refused = run("size", model, *ASKED, "--ttft-p95", "1s", *wrong)
        assert refused.exit_code == 2 and words in refused.output
