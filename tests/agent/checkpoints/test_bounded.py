"""Bounded reads of files that somebody else wrote."""

import os
from pathlib import Path

import pytest

from pertoken.agent.checkpoints.facts import MOST, FileRefused, opened, read_json, whole


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    with pytest.raises(FileRefused, match=r"config\.json: not a regular file"), opened(pipe):
        pass


@pytest.mark.parametrize(
    ("body", "why"), [(b"[" * 60, "not JSON"), (b"[" * 100_000, "larger than"), (b'{"a": 1', "not JSON")]
)
def test_a_reply_that_is_too_large_or_no_json_is_refused_as_a_whole(tmp_path: Path, body: bytes, why: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(body)
    with pytest.raises(FileRefused, match=why) as caught:
        read_json(file, 1000)
    assert "[" not in str(caught.value)


def test_json_of_the_most_bytes_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"a": 1}')
    assert read_json(file, 8) == {"a": 1}


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, MOST])
def test_a_value_that_is_no_count_is_unknown(value: object) -> None:
    assert whole(value) is None
    assert whole(1) == 1
