from pathlib import Path

import pytest

from pertoken.access import read_secret
from pertoken.errors import BadInput


def test_a_secret_is_the_first_line_of_a_file_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b" s3cret \nmore\n")
    assert read_secret(str(file), None, "it") == b"s3cret"
    assert read_secret(None, "HOOK", "it", {"HOOK": "from-env"}) == b"from-env"
    assert read_secret(None, None, "it") is None


def test_a_missing_or_empty_secret_is_an_error_that_names_where_it_should_be(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"delivery.secret_file: .*none: cannot be read: no such file"):
        read_secret(str(tmp_path / "none"), None, "delivery.secret_file")
    with pytest.raises(BadInput, match="HOOK is empty"):
        read_secret(None, "HOOK", "it", {})
