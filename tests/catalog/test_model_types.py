import pytest

from pertoken.catalog.model_facts import EVERY_LAYER, LATENT, LAYER_LISTS, cache_kind


@pytest.mark.parametrize(
    ("file_kind", "model_type", "kind"),
    [
        ("config", "llama", EVERY_LAYER),
        ("config", "qwen3_vl_text", EVERY_LAYER),
        ("config", "deepseek_v3", LATENT),
        ("config", "jamba", LAYER_LISTS),
        ("config", "deepseek_v4", None),
        ("config", None, None),
        ("gguf", "command-r", EVERY_LAYER),
        ("gguf", "nemotron_h", LAYER_LISTS),
        ("gguf", "rwkv7", None),
    ],
)
def test_a_model_type_is_known_by_how_it_caches_or_not_known(
    file_kind: str, model_type: str | None, kind: str | None
) -> None:
    assert cache_kind(file_kind, model_type) == kind
