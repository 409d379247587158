import pytest

from pertoken.agent.checkpoints.facts import Layer, ShapeUnknown, fields_of


def test_layers_that_are_alike_give_heads_and_head_size() -> None:
    assert fields_of([Layer("attention", 2, 32)] * 3, None) == {"n_layers": 3, "n_kv_heads": 2, "head_dim": 16}


def test_a_window_counts_only_where_its_size_is_known() -> None:
    layers = [Layer("attention", 2, 32), Layer("sliding", 2, 32)]
    assert fields_of(layers, 8) == {
        **{"n_layers": 2, "n_kv_heads": 2, "head_dim": 16},
        **{"sliding_window": 8, "n_windowed_layers": 1},
    }
    assert fields_of(layers, None) == {"n_layers": 2, "n_kv_heads": 2, "head_dim": 16}


def test_layers_that_differ_give_the_sum_of_their_values_and_the_fewest_heads() -> None:
    layers = [Layer("attention", 4, 32), Layer("sliding", 2, 32), Layer("linear", state_bytes=7), Layer("none")]
    assert fields_of(layers, 8) == {
        **{"n_layers": 4, "n_kv_heads": 2, "kv_values": 192, "n_attention_layers": 1},
        **{"sliding_window": 8, "n_windowed_layers": 1, "windowed_kv_values": 64},
        **{"n_linear_layers": 1, "state_bytes": 7},
    }


def test_an_odd_number_of_values_is_a_sum() -> None:
    assert fields_of([Layer("attention", 1, 33)], None)["kv_values"] == 33


def test_a_model_without_a_cache_is_unknown() -> None:
    with pytest.raises(ShapeUnknown):
        fields_of([Layer("linear", state_bytes=7)], None)
