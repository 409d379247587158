"""Public words of the program and its catalog."""

import pytest

from pertoken.store.export.anonymous import public_vocabulary, published


def test_the_vocabulary_has_states_knobs_and_words_of_messages() -> None:
    vocabulary = public_vocabulary()
    assert {"REALIZED", "on_demand", "unsupported"} <= vocabulary.constants
    assert {"--tensor-parallel-size", "tp", "us-east-1", "HBM3"} <= vocabulary.terms
    assert {"replicas", "forecast", "measured", "suffice"} <= vocabulary.words
    assert {"params_total", "epoch_id"} <= vocabulary.fields


def test_the_vocabulary_has_no_names_of_examples() -> None:
    vocabulary = public_vocabulary()
    every_word = vocabulary.constants | vocabulary.terms | vocabulary.words
    assert not every_word & {"acme", "globex", "partner-api", "dc1-h100-1x-01", "pertoken demo"}


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("Llama-3.3-70B", "Llama-3.3-70B"),
        ("/models/Qwen2.5-7B-q4globex", "Qwen/Qwen2.5-7B"),
        ("globex/Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
        ("globex", None),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("globex L40S", None),
    ],
)
def test_a_name_is_public_where_the_catalog_has_it(text: str, public: str | None) -> None:
    assert published(text) == public
