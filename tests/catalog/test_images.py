"""Tokens and FLOPs of images."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.catalog.model_facts import ImageEncoder, image_encoder

NAMES = ("Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct", "google/gemma-3-27b-it", "Pixtral-12B-2409")
SIDES = st.integers(1, 6000)


def encoder(name: str) -> ImageEncoder:
    known = image_encoder(name)
    assert known is not None
    return known


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", 1024, 1024, 32 * 32),
        ("Qwen/Qwen3-VL-8B-Instruct", 640, 480, 20 * 15),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 1008, 1008, 36 * 36),
        ("google/gemma-3-27b-it", 640, 480, 256),
        ("google/gemma-3-27b-it", 4000, 3000, 256),
        # A row of 55 tokens and its end, for each of 55 rows; a wide image is scaled to 1,540 pixels.
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 1540, 1540, 55 * 56),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 3080, 1540, 28 * 56),
        ("mistralai/Pixtral-12B-2409", 1024, 1024, 64 * 65),
    ],
)
def test_an_image_becomes_tokens_by_its_pixels_and_the_patches_of_the_model(
    model: str, width: int, height: int, tokens: int
) -> None:
    assert encoder(model).tokens(width, height) == tokens


def test_a_small_image_is_enlarged_and_a_huge_one_reduced() -> None:
    known = encoder("Qwen3-VL-30B-A3B-Instruct")
    assert known.tokens(32, 32) == 8 * 8  # 256 x 256 pixels at least
    assert known.tokens(20_000, 20_000) == 128 * 128  # 4,096 x 4,096 at most


def test_encoding_takes_two_flops_per_parameter_and_patch_and_attention() -> None:
    known = encoder("Qwen3-VL-8B-Instruct")
    params, patches = 27 * 1152 * (4 * 1152 + 2 * 4304), 64 * 64
    assert known.flops(1024, 1024) == 2 * params * patches + 4 * 27 * 1152 * patches**2
    assert 0.4e9 < params < 0.45e9


def test_text_models_and_unknown_ones_have_no_encoder() -> None:
    assert image_encoder("Qwen/Qwen3-8B") is None
    assert image_encoder("google/gemma-3-1b-it") is None


def test_smaller_models_of_a_family_have_an_encoder_of_their_own() -> None:
    assert encoder("Qwen/Qwen3-VL-4B-Instruct").hidden < encoder("Qwen/Qwen3-VL-8B-Instruct").hidden


@given(st.sampled_from(NAMES), SIDES, SIDES)
def test_every_image_has_tokens_and_takes_work(name: str, width: int, height: int) -> None:
    known = encoder(name)
    assert known.tokens(width, height) >= 1
    assert known.flops(width, height) > 0


def test_an_image_without_pixels_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one pixel"):
        encoder("Qwen3-VL-8B").tokens(0, 10)
