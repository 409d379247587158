"""Rows of an anonymized recording, column by column."""

import json

import pytest
from sqlalchemy import Text

from pertoken.store.connect.location import GROUPS
from pertoken.store.export.anonymous import (
    COLUMNS,
    NAMES,
    Anonymizer,
    Pseudonyms,
    column_name,
    public_vocabulary,
    published,
)
from pertoken.store.export.recording import tables
from pertoken.store.schema import advice as a
from pertoken.store.schema import telemetry as t


@pytest.fixture
def anonymizer() -> Anonymizer:
    return Anonymizer(Pseudonyms(b"a key of the test", published), public_vocabulary())


def value(anonymizer: Anonymizer, column: object, text: object) -> object:
    """Return what a row with this value and no other has afterwards."""
    table = column.table  # type: ignore[attr-defined]
    row = tuple(text if other is column else None for other in table.columns)
    return anonymizer.row(table, row)[list(table.columns).index(column)]


def test_every_text_column_of_the_schema_states_what_it_keeps() -> None:
    of_schema = {
        column_name(column)
        for group in GROUPS
        for table in tables(group)
        for column in table.columns
        if isinstance(column.type, Text)
    }
    stated = [*NAMES, *(column for columns in COLUMNS.values() for column in columns)]
    assert sorted(stated) == sorted(of_schema)


def test_text_of_a_column_that_states_nothing_is_replaced_as_a_whole(
    anonymizer: Anonymizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.store.export.anonymous.COLUMNS", {})
    unlisted = Anonymizer(anonymizer.names, public_vocabulary())
    assert str(value(unlisted, t.event.c.message, "the engine stopped")).startswith("text-")


@pytest.mark.parametrize("version", ["0.11.2", "0.11.2rc1", "v0.5.23", "580.95.05", "1.2.0.post1", "0.6.0.dev3"])
def test_a_published_version_stays(anonymizer: Anonymizer, version: str) -> None:
    assert value(anonymizer, t.engine.c.version, version) == version


@pytest.mark.parametrize("version", ["0.11.2+globex.7", "0.11.2-globex", "globex-2", "0.11.2rc1+globex", "1.2globex"])
def test_the_part_of_a_version_that_a_site_added_is_replaced(anonymizer: Anonymizer, version: str) -> None:
    kept = str(value(anonymizer, t.epoch.c.engine_version, version))
    assert "globex" not in kept
    assert kept.startswith(version.partition("globex")[0].rstrip("+-"))


def test_knobs_of_the_catalog_stay_and_other_settings_do_not(anonymizer: Anonymizer) -> None:
    knobs = {
        "tp": 2,
        "kv_dtype": "fp8",
        "gpu_memory_utilization": 0.9,
        "lora_adapters": ["search", "globex-lora"],
        "globex_flag": "globex",
        "draft_model": "chat",
        "rendezvous": "globex-head:29500",
        "workload": "Deployment search/globex",
    }
    kept = json.loads(str(value(anonymizer, t.epoch.c.knobs, json.dumps(knobs))))
    assert {name: kept[name] for name in ("tp", "kv_dtype", "gpu_memory_utilization")} == {
        "tp": 2, "kv_dtype": "fp8", "gpu_memory_utilization": 0.9,
    }  # fmt: skip
    assert len(kept["lora_adapters"]) == 2 and kept["workload"].startswith("Deployment name-")
    assert "globex" not in str(kept) and "search" not in str(kept) and "'chat'" not in str(kept)


def test_a_label_quoted_in_a_reason_is_replaced_even_where_it_is_an_ordinary_word(anonymizer: Anonymizer) -> None:
    for quoted in ("'search'", '"search"', "`search`", "\u201csearch\u201d", 'team="search"', "team=search", "'search"):
        kept = str(value(anonymizer, t.capability.c.reason, f"unsupported for {quoted}"))
        assert kept.startswith("unsupported for ") and "search" not in kept


def test_a_sentence_keeps_its_words_and_figures(anonymizer: Anonymizer) -> None:
    anonymizer.learn("host.name", "globex-01")
    sentence = "2 → 1 replicas: the forecast shows no saving on globex-01 at 10.1.2.3:8000 of /srv/globex/weights"
    kept = str(value(anonymizer, a.refusal.c.reason, sentence))
    assert kept.startswith("2 → 1 replicas: the forecast shows no saving on host-")
    assert "globex" not in kept and "10.1.2.3" not in kept


@pytest.mark.parametrize(
    "name", ["\U0001f98a", "\u00e4\u00f6\u00fc", "\u0430\u043a\u043c\u0435", "3f:7a:00:12:be:ef", "+4912345678901"]
)
def test_a_name_in_other_characters_is_replaced(anonymizer: Anonymizer, name: str) -> None:
    assert name not in str(value(anonymizer, t.event.c.message, f"the engine {name} stopped"))


def test_a_name_that_is_a_word_is_replaced_wherever_it_was_learned(anonymizer: Anonymizer) -> None:
    anonymizer.learn("engine_counter_sample.metric", 'tenant_prompt_tokens{team="engine",user="Big Globex Team"}')
    kept = str(value(anonymizer, t.event.c.message, "the engine of Big Globex Team stopped"))
    assert kept.startswith("the tenant-") and "Globex" not in kept and kept.endswith(" stopped")


def test_labels_of_a_metric_are_replaced_and_public_reasons_stay(anonymizer: Anonymizer) -> None:
    assert value(anonymizer, t.engine_counter_sample.c.metric, 'requests_finished{reason="length"}') == (
        'requests_finished{reason="length"}'
    )
    kept = str(value(anonymizer, t.engine_counter_sample.c.metric, 'tenant_prompt_tokens{team="search",globex="x"}'))
    assert kept.startswith('tenant_prompt_tokens{team="tenant-') and "search" not in kept and "globex" not in kept


def test_ids_in_columns_documents_and_texts_are_the_same_other_ids(anonymizer: Anonymizer) -> None:
    host_id = -4245415405248627312
    anonymizer.names.learn_id(host_id)
    replaced = value(anonymizer, t.host.c.host_id, host_id)
    assert replaced not in (host_id, -host_id)
    assert value(anonymizer, a.recommendation.c.target_key, str(host_id)) == str(replaced)
    body = json.dumps({"edits": [["host", host_id]], "after": {str(host_id): 1}, "count": 7})
    kept = json.loads(str(value(anonymizer, a.verdict.c.body, body)))
    assert kept == {"edits": [["host", replaced]], "after": {str(replaced): 1}, "count": 7}


def test_small_numbers_in_id_columns_mean_what_they_did(anonymizer: Anonymizer) -> None:
    assert value(anonymizer, t.device_share.c.epoch_id, 0) == 0


def test_numbers_that_know_a_machine_again_are_left_out(anonymizer: Anonymizer) -> None:
    assert value(anonymizer, t.host.c.boot_ms, 1_764_300_123_456) is None


def test_json_in_a_text_of_json_is_judged_too(anonymizer: Anonymizer) -> None:
    body = json.dumps({"proposal": json.dumps({"service": "globex"})})
    kept = json.loads(str(value(anonymizer, a.recommendation.c.body, body)))
    assert json.loads(kept["proposal"])["service"].startswith("name-")


def test_text_that_only_begins_like_json_is_replaced_as_a_whole(anonymizer: Anonymizer) -> None:
    assert str(value(anonymizer, a.trial.c.body, '{"globex": ')).startswith("text-")


def test_a_document_that_is_nested_too_deep_is_replaced_as_a_whole(anonymizer: Anonymizer) -> None:
    body = '{"globex": ' * 900 + "1" + "}" * 900
    kept = str(value(anonymizer, a.trial.c.body, body))
    assert "globex" not in kept


def test_links_lead_to_the_pseudonyms_of_devices(anonymizer: Anonymizer) -> None:
    anonymizer.learn("device.uuid", "GPU-globex")
    kept = json.loads(str(value(anonymizer, t.device.c.links, '{"nvlink": ["GPU-globex"], "search": ["chat"]}')))
    assert kept["nvlink"] == [value(anonymizer, t.device.c.uuid, "GPU-globex")]
    assert "search" not in kept and "chat" not in str(kept)


def test_a_name_that_is_a_small_number_leaves_figures_as_they_are(anonymizer: Anonymizer) -> None:
    anonymizer.learn("engine_counter_sample.metric", 'tenant_prompt_tokens{team="2"}')
    assert value(anonymizer, a.refusal.c.reason, "2 → 1 replicas") == "2 → 1 replicas"


@pytest.mark.parametrize("bounds", ["0.01,0.5,1.0", "1,2,inf", "5e-05,1.0", "2026-11", "2026-11-28"])
def test_bounds_and_dates_stay(anonymizer: Anonymizer, bounds: str) -> None:
    assert value(anonymizer, t.histogram_set.c.upper_bounds, bounds) == bounds


def test_text_that_is_no_list_of_bounds_is_replaced(anonymizer: Anonymizer) -> None:
    assert str(value(anonymizer, t.histogram_set.c.upper_bounds, "1" * 60 + "x")).startswith("name-")
