import pytest

from pertoken.forecast.capacity import fitting_sequences, kv_tokens, weight_bytes
from pertoken.forecast.served import resolve
from tests.forecast.builders import LLAMA_8B, MARKET, SHORT


def test_what_fits_is_what_memory_leaves_beside_weights_and_reserve() -> None:
    candidate = resolve([LLAMA_8B], [SHORT], MARKET)
    assert weight_bytes(candidate)[0] == 8.03e9 * 2
    by_hand = (81_559 * 2**20 * 0.9 - 8.03e9 * 2 - 1.5e9) / 131_072
    assert kv_tokens(candidate)[0] == pytest.approx(by_hand)
    assert fitting_sequences(candidate)[0] == pytest.approx(by_hand / 100)
