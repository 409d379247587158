"""The parts of `benchmarks.site`: what it draws, measures and scores. Nothing is timed."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.site.closed_loop import Measured, Prediction, figures
from benchmarks.site.configurations import KV_DTYPES, SLOTS, draw
from benchmarks.site.models import FORMATS, SHAPES, SMALL, write
from benchmarks.site.scoring import Outcome, score
from benchmarks.site.server import Server, ServerSettings
from pertoken.access import Access
from pertoken.agent.load_probe.client import Client, Completion


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_draws_16_configurations_in_which_each_level_comes_at_least_twice(seed: int) -> None:
    bases, others = draw(SHAPES, seed)
    assert (bases, others) == draw(SHAPES, seed)
    assert len(set(others)) == 16 and not set(others) & set(bases)
    everything = [*bases, *others]
    for name, levels in (("slots", SLOTS), ("threads", (1, 2)), ("kv_dtype", KV_DTYPES), ("weight_dtype", FORMATS)):
        counts = Counter(getattr(item, name) for item in everything)
        assert set(counts) == set(levels) and min(counts.values()) >= 2, (name, counts)
    assert sum(any(other.same_format(base) for base in bases) for other in others) == 8
    for item in everything:
        assert item.clients <= item.slots and 1.3 * (item.prompt + item.generated) < item.context


def test_the_models_have_the_sizes_they_are_named_for() -> None:
    total = {shape.name: (shape.model().params_total or 0) / 1e9 for shape in SHAPES}
    assert {name: round(size, 1) for name, size in total.items()} == {
        "dense-0.3b": 0.3,
        "dense-0.6b": 0.6,
        "dense-1.5b": 1.5,
        "moe-0.6b": 0.6,
    }


@pytest.mark.parametrize(("shape", "dtype", "kv"), [(SMALL[1], "int4", "int8")])
def test_a_quantized_model_of_random_weights_is_served(shape: object, dtype: str, kv: str, tmp_path: Path) -> None:
    small = next(small for small in SMALL if small is shape)
    file = write(tmp_path / "model.gguf", small, dtype)
    with Server(ServerSettings(str(file), "site", 2, 128, 1, kv)) as server:
        completion = Client(server.url, "site", Access(server.url), 0).complete("abc def", 8)
    assert completion.generated_tokens == 8 and len(completion.part_s) >= 7


def test_figures_are_of_whole_requests_sent_after_the_warm_up() -> None:
    def request(sent_s: float) -> Completion:
        return Completion(sent_s, tuple(sent_s + 1 + 0.1 * n for n in range(11)), 50, 0, 11)

    alone = [request(2.0 * n) for n in range(10)]
    slow_start = [Completion(0.0, (9.0, 9.1), 50, 0, 2), *alone[5:]]
    for clients in ([alone], [alone, slow_start]):
        steady = figures(clients, 0.0)
        assert steady is not None
        assert steady.ttft_ms == pytest.approx(1000) and steady.tpot_ms == pytest.approx(100)
        assert steady.tok_s == pytest.approx(len(clients) * 11 / 2)


def test_errors_coverage_and_width_are_those_of_the_predictions() -> None:
    prediction = Prediction((90, 100, 110), (9, 10, 11), (90, 100, 110))
    rounds = tuple(Measured(100 * factor, 10 * factor, 125 * factor) for factor in (0.98, 1.0, 1.02))
    rows, targets = score([Outcome("tiny", "load", prediction, rounds)], {})
    assert [row.what for row in rows if row.unit == "predicted / measured"] == [
        "tiny: tok_s",
        "tiny: tpot_ms",
        "tiny: ttft_ms",
    ]
    values = {target.id: target.value for target in targets}
    assert values["site.load_median"] == pytest.approx(0.0) and values["site.load_p90"] == pytest.approx(0.16)
    assert values["site.format_median"] is None
    assert values["site.coverage"] == pytest.approx(2 / 3) and values["site.width"] == pytest.approx(1.1)
