import pytest

from pertoken.catalog.engine_lines import engine_lines, multi_token_prediction, newer_releases, version_numbers
from pertoken.catalog.market import load_market


def test_an_engine_that_is_no_longer_developed_names_its_successors_and_source() -> None:
    line = load_market().engine_line("tgi")
    assert line is not None and (line.status, line.successors) == ("maintenance", ("vllm", "sglang"))
    assert load_market().engine_line("vllm") is None


def test_every_line_has_a_source_and_a_date_and_its_successors_are_developed() -> None:
    for name, line in engine_lines().items():
        assert line.engine == name and line.source and line.as_of and line.status in ("maintenance", "archived")
        assert line.successors and not set(line.successors) & set(engine_lines())


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_releases_rise_in_version_and_date_and_name_their_sources(engine: str) -> None:
    releases = newer_releases(engine, "0")
    versions = [version_numbers(release.version) or () for release in releases]
    assert versions == sorted(versions) and len(set(versions)) == len(versions) > 1
    assert [release.public_by for release in releases] == sorted(release.public_by for release in releases)
    assert all(release.source and release.changes and release.as_of for release in releases)
    assert any(release.faster for release in releases)


def test_only_releases_after_a_known_version_are_newer() -> None:
    assert [release.version for release in newer_releases("vllm", "0.11.0")] == ["0.12.0", "0.32.0"]
    assert newer_releases("vllm", "main") == newer_releases("vllm", None) == newer_releases("an-engine", "1") == ()


def test_a_published_gain_of_multi_token_prediction_names_its_batch_and_its_setting() -> None:
    gain = multi_token_prediction("sglang", "deepseek-ai/DeepSeek-R1")
    assert gain is not None and gain.max_running == 32 and "1.5 at 32, on eight H200" in gain.text
    alone = multi_token_prediction("trtllm", "deepseek-ai/DeepSeek-R1")
    assert alone is not None and alone.text.startswith("2.16 times the decode speed at one running request, none is")
    assert multi_token_prediction("vllm", "deepseek-ai/DeepSeek-R1") is None
