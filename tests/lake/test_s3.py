"""A lake in a bucket: what is published, asked, deleted and refused, against a stand-in of S3 on loopback."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pertoken.errors import StoreError
from pertoken.lake import questions
from pertoken.lake.manifest import LakeFiles
from pertoken.lake.publish import forget, prune
from pertoken.lake.reading import all_days, verified
from tests.lake.lakes import CLOCK, DAY, asked, host, paid, published

moto_server = pytest.importorskip("moto.server")
URL = "s3://team-costs/lakes/all"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket on loopback, with credentials in the environment."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    address, port = server.get_host_and_port()
    endpoint = f"http://{address}:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key-of-a-test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    import boto3

    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="team-costs")
    try:
        yield URL
    finally:
        server.stop()


def test_a_bucket_answers_as_a_folder_does(tmp_path: Path, bucket: str) -> None:
    store = host(tmp_path / "db")
    published(store, tmp_path / "lake")
    published(store, bucket)
    question = partial(questions.dollars, by=["model"])
    assert asked(bucket, question) == asked(tmp_path / "lake", question) != []
    assert not verified(all_days(LakeFiles(bucket))).faults
    assert {day.outcome.value for day in published(store, bucket)} == {"unchanged"}


def test_a_name_is_deleted_and_old_days_are_pruned_in_a_bucket(tmp_path: Path, bucket: str) -> None:
    published(host(tmp_path / "db"), bucket)
    before, files = paid(bucket), LakeFiles(bucket)
    model = asked(bucket, partial(questions.dollars, by=["model"]))[0]["model"]
    assert len(list(forget(files, "model", model, next(CLOCK)))) == 2
    assert paid(bucket) == before
    assert list(prune(files, None, next(CLOCK) + 2 * DAY * 10**6)) == []


def test_a_bucket_that_is_not_there_is_one_line_without_the_secret(tmp_path: Path, bucket: str) -> None:
    with pytest.raises(StoreError, match="cannot be") as refused:
        published(host(tmp_path / "db"), bucket.replace("team-costs", "other-bucket"))
    assert "secret-of-a-test" not in str(refused.value) and "\n" not in str(refused.value)


def test_no_file_of_a_lake_holds_a_credential(tmp_path: Path, bucket: str) -> None:
    published(host(tmp_path / "db"), bucket)
    files = LakeFiles(bucket)
    for manifest in all_days(files).manifests:
        for entry in files.files(manifest.folder):
            assert b"of-a-test" not in files.read(entry.path)
