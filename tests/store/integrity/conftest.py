"""A database in which every table holds rows, whole and as a copy to be damaged."""

from pathlib import Path

import pytest

from pertoken.store.connect.location import StoreLocation
from tests.store.filled import filled


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    return filled(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def where(whole: StoreLocation, tmp_path: Path) -> StoreLocation:
    for file in (whole.folder or tmp_path).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return StoreLocation(folder=tmp_path)
