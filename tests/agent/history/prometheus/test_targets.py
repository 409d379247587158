"""Series of one process: labels, scrapes by two servers, restarts."""

import pytest

from pertoken.agent.history.prometheus import (
    PrometheusSeries,
    Scrape,
    Targets,
    address_of,
    distinct,
    is_same_pod,
    merged,
    pod_of,
    pods_of,
    processes,
)

TOKENS, START = "vllm:prompt_tokens_total", "process_start_time_seconds"
ROW = (TOKENS, (("model_name", "m"),))
Values = list[float | None]


def tokens(values: Values, **target: str) -> PrometheusSeries:
    return PrometheusSeries({"__name__": TOKENS, "model_name": "m", "instance": "a:1", **target}, values)


def started(values: Values, **target: str) -> PrometheusSeries:
    return PrometheusSeries({"__name__": START, "instance": "a:1", **target}, values)


def grouped(*series: PrometheusSeries) -> list[list[Scrape]]:
    return processes(Targets(series).scrapes(series))


def counted(*series: PrometheusSeries) -> list[list[float | None]]:
    """Values of the counter of each process."""
    return [list(merged(process)[ROW]) for process in grouped(*series)]


def test_labels_of_a_target_are_those_of_the_start_of_its_process() -> None:
    series = [tokens([1], team="search", cluster="eu"), started([7], team="search", cluster="eu")]
    target, page = Targets(series).split(series[0].labels)
    assert dict(target) == {"instance": "a:1", "team": "search", "cluster": "eu"} and page == (("model_name", "m"),)


def test_without_a_start_time_labels_of_all_names_are_the_target_s_but_for_known_ones_of_pages() -> None:
    other = PrometheusSeries(
        {"__name__": "vllm:x", "model_name": "m", "instance": "a:1", "team": "b", "shape": "s"}, [1]
    )
    series = [tokens([1], team="b"), other]
    target, page = Targets(series).split(other.labels)
    assert dict(target) == {"instance": "a:1", "team": "b"} and page == (("model_name", "m"), ("shape", "s"))


@pytest.mark.parametrize("with_start", [True, False])
def test_a_label_that_is_added_while_a_process_runs_does_not_begin_its_counters(with_start: bool) -> None:
    before, after = tokens([100, 110, None, None]), tokens([None, None, 120, 130], team="search")
    starts = [started([7, 7, None, None]), started([None, None, 7, 7], team="search")] if with_start else []
    assert counted(before, after, *starts) == [[100, 110, 120, 130]]


@pytest.mark.parametrize("label", ["prometheus_replica", "receive_replica", "replica", "prometheus", "of_ours"])
@pytest.mark.parametrize("with_start", [True, False])
def test_scrapes_of_a_pair_of_servers_are_one_process(label: str, with_start: bool) -> None:
    first, second = tokens([100, 110, 120, 130], **{label: "a"}), tokens([98, 108, 118, 128], **{label: "b"})
    starts = [started([7] * 4, **{label: name}) for name in ("a", "b")] if with_start else []
    assert counted(first, second, *starts) == [[100, 110, 120, 130]]


def test_a_gap_of_one_scrape_is_filled_by_the_other_without_a_fall() -> None:
    first = tokens([100, 110, None, None, 140, 150], replica="a")
    second = tokens([None, 98, 108, 118, None, None], replica="b")
    starts = [started([7, 7, None, None, 7, 7], replica="a"), started([None, 7, 7, 7, None, None], replica="b")]
    assert counted(second, first, *starts) == [[100, 110, 110, 118, 140, 150]]


def test_a_restart_that_the_other_scrape_sees_first_is_a_fall() -> None:
    first = tokens([1000, 1010, None, None, None, None], replica="a")
    second = tokens([1000, 1008, 3, 13, 23, 33], replica="b")
    starts = [started([7, 7, None, None, None, None], replica="a"), started([7, 7, 9, 9, 9, 9], replica="b")]
    assert counted(first, second, *starts) == [[1000, 1008, 3, 13, 23, 33]]


def test_processes_that_started_at_different_times_are_different_ones_behind_one_address() -> None:
    series = [tokens([1, 2], slot="x"), tokens([5, 6], slot="y"), started([7, 7], slot="x"), started([8, 8], slot="y")]
    assert sorted(counted(*series)) == [[1, 2], [5, 6]]


def test_counters_that_do_not_agree_are_of_different_processes() -> None:
    assert len(grouped(tokens([100, 110, 120], slot="x"), tokens([5000, 5001, 5002], slot="y"))) == 2


@pytest.mark.parametrize("label", ["node", "host", "hostname", "kubernetes_node", "pod", "namespace"])
def test_engines_on_localhost_of_several_hosts_are_apart_even_while_they_are_idle(label: str) -> None:
    assert len(grouped(tokens([0, 0], **{label: "one"}), tokens([0, 0], **{label: "two"}))) == 2


def test_one_target_that_two_jobs_scrape_is_one_process() -> None:
    assert len(grouped(tokens([1, 2], job="a"), tokens([1, 2], job="b"))) == 1


def test_an_address_names_the_pod_where_it_has_no_port() -> None:
    assert address_of({"instance": "10.0.0.1:8000", "pod": "p"}) == "10.0.0.1:8000"
    assert address_of({"instance": "vllm", "pod": "p", "namespace": "n"}) == "vllm/p"


def test_pods_are_named_with_their_namespaces() -> None:
    labels = {"pod": "dcgm-x", "namespace": "gpu", "exported_pod": "llama-0", "exported_namespace": "prod"}
    assert pods_of(labels) == ["gpu/dcgm-x", "prod/llama-0"] and pod_of({}) is None
    assert is_same_pod("prod/llama-0", "llama-0") and is_same_pod("prod/llama-0", "prod/llama-0")
    assert not is_same_pod("prod/llama-0", "dev/llama-0") and not is_same_pod(None, None)


def test_processes_of_one_address_on_one_host_are_distinguished_by_a_label() -> None:
    assert distinct([("h", "a:1", {"slot": "x"}), ("h", "a:1", {"slot": "y"}), ("g", "a:1", {})]) == [
        *("a:1/x", "a:1/y", "a:1"),
    ]
