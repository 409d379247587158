"""Bills in several files: together they have the lines of the bill in one."""

import csv
import gzip
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.costs.invoice.read import read_bill, read_invoice
from pertoken.errors import BadInput
from tests.examples import examples

EXPORTS = Path(__file__).parent / "exports"


def divided(folder: Path, name: str, cuts: list[int], ending: str = ".csv") -> list[Path]:
    """Write a committed CSV export as one file for each interval between cuts, each with the header."""
    lines = (EXPORTS / name).read_text(encoding="utf-8").splitlines(keepends=True)
    edges = [1, *sorted(cuts), len(lines)]
    parts = [lines[begin:end] for begin, end in pairwise(edges) if end > begin]
    files = []
    for n, part in enumerate(parts):
        file = folder / f"month=10/part-{n:05}{ending}"
        file.parent.mkdir(exist_ok=True)
        content = "".join([lines[0], *part]).encode()
        file.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
        files.append(file)
    return files


@settings(max_examples=examples(20), deadline=None)
@given(cuts=st.lists(st.integers(1, 6), max_size=4, unique=True), ending=st.sampled_from([".csv", ".csv.gz"]))
def test_a_bill_in_parts_has_the_lines_of_the_whole_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], ending: str
) -> None:
    folder, whole = tmp_path_factory.mktemp("bill"), read_invoice(EXPORTS / "aws.csv")
    with (EXPORTS / "aws.csv").open(encoding="utf-8") as file:
        n_lines = len(list(csv.reader(file))) - 1
    files = divided(folder, "aws.csv", [cut for cut in cuts if cut <= n_lines], ending)
    read: list[None] = []
    assert read_bill(files, lambda: read.append(None)) == whole
    assert len(read) == len(files)
    manifest = folder / "metadata"
    manifest.mkdir()
    (manifest / "Manifest.json").write_text("{}")
    assert read_bill([folder]) == whole


def test_a_file_that_is_there_twice_is_refused_and_named(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        shutil.copy(EXPORTS / "aws.csv", tmp_path / name)
    with pytest.raises(BadInput, match=r"b\.csv: the same as .*a\.csv: its lines would count twice"):
        read_bill([tmp_path])


def test_files_of_two_clouds_are_not_one_bill(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"azure\.csv: is Azure .*aws\.csv is AWS .*: pass one bill"):
        read_bill([EXPORTS / "aws.csv", EXPORTS / "azure.csv"])


def test_an_empty_folder_a_missing_file_and_a_broken_gzip_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no file that ends in \.parquet, \.csv, \.csv\.gz"):
        read_bill([tmp_path])
    with pytest.raises(BadInput, match=r"gone\.csv: cannot be read"):
        read_bill([tmp_path / "gone.csv"])
    for content in (gzip.compress(b"a,b\n1,2\n" * 99)[:-20], b"\x1f\x8b" + bytes(40)):
        (tmp_path / "cut.csv.gz").write_bytes(content)
        with pytest.raises(BadInput, match=r"cut\.csv\.gz: cannot be read"):
            read_bill([tmp_path])


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pertoken.costs.invoice.read.MAX_BYTES", 2**20)
    (tmp_path / "bill.csv.gz").write_bytes(gzip.compress(bytes(2**21)))
    with pytest.raises(BadInput, match=r"unpacks to more than 1 MiB"):
        read_bill([tmp_path / "bill.csv.gz"])
