"""Health checks and flags of servers that a change starts."""

import pytest

from pertoken.advisor.changes.servers import health_check, new_server_options, spelled
from pertoken.testing import deployment


@pytest.mark.parametrize(
    ("engine", "page"),
    [
        ("vllm", "/health"),
        ("nim", "/v1/health/ready"),
        ("dynamo-sglang", "/health"),
        ("triton", "/v2/health/ready"),
        ("an engine of tomorrow", "/v1/models"),
    ],
)
def test_a_check_asks_the_health_page_of_its_engine(engine: str, page: str) -> None:
    command, note = health_check(engine, "each server of chat").split("  # ")
    assert command == f"curl --fail --silent --show-error http://ADDRESS{page}"
    assert note == "ADDRESS: host:port of each server of chat"


def test_flags_and_changes_without_a_flag_continue_a_line() -> None:
    after, before = spelled("vllm", {"tp": (8, 4), "model": ("big", "small")})
    assert after == ", with --tensor-parallel-size 4, serve small instead of big"
    assert before == ", with --tensor-parallel-size 8, model as before"


def test_a_new_server_gets_its_knobs_as_flags_where_there_are_flags() -> None:
    options = new_server_options(deployment("Llama-3.1-8B").but(tp=2, role="decode"))
    assert " with --tensor-parallel-size 2" in options and "role=decode" in options
