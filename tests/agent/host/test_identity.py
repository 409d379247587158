import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pertoken.agent.host.identity import HostIdentity, LastingIdentity, read_instance
from pertoken.agent.scrape import RequestLimits, ScrapeError
from pertoken.catalog.clouds import Cloud, clouds
from tests.standin_nvml import ManualClock

CLOUDS = {cloud.name: cloud for cloud in clouds()}
LIMITS = RequestLimits(timeout_s=10.0, page_bytes=10_000)
TOKEN = "AQAEAG=="
AWS = {
    "/latest/meta-data/instance-type": "p5.48xlarge",
    "/latest/meta-data/placement/region": "us-east-1",
    "/latest/meta-data/instance-life-cycle": "on-demand",
}
GCP = {
    "/computeMetadata/v1/instance/machine-type": "projects/81/machineTypes/a3-highgpu-8g",
    "/computeMetadata/v1/instance/zone": "projects/81/zones/us-central1-a",
    "/computeMetadata/v1/instance/scheduling/preemptible": "TRUE",
}
_QUERY = "?api-version=2021-02-01&format=text"
AZURE = {
    f"/metadata/instance/compute/vmSize{_QUERY}": "Standard_ND96isr_H100_v5",
    f"/metadata/instance/compute/location{_QUERY}": "eastus",
    f"/metadata/instance/compute/priority{_QUERY}": "",
}


@contextmanager
def metadata(pages: Mapping[str, str], header: tuple[str, str]) -> Iterator[str]:
    """A stand-in metadata service on loopback that answers only who sends the header; with a token as AWS does."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            good = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
            self._answer(200 if good else 400, TOKEN)

        def do_GET(self) -> None:
            allowed = self.headers[header[0]] == header[1]
            self._answer(200 if allowed and self.path in pages else 404 if allowed else 401, pages.get(self.path, ""))

        def _answer(self, status: int, text: str) -> None:
            body = text.encode() if status == 200 else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def firmware(root: Path, **words: str) -> Path:
    folder = root / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for name, text in words.items():
        (folder / name).write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("cloud", "pages", "header", "expected"),
    [
        ("aws", AWS, ("X-aws-ec2-metadata-token", TOKEN), ("p5.48xlarge", "us-east-1", "on_demand")),
        ("gcp", GCP, ("Metadata-Flavor", "Google"), ("a3-highgpu-8g", "us-central1", "spot")),
        ("azure", AZURE, ("Metadata", "true"), ("Standard_ND96isr_H100_v5", "eastus", "on_demand")),
        (
            "azure",
            {**AZURE, f"/metadata/instance/compute/priority{_QUERY}": "Spot"},
            ("Metadata", "true"),
            ("Standard_ND96isr_H100_v5", "eastus", "spot"),
        ),
    ],
)
def test_the_metadata_service_of_each_cloud_returns_instance_region_and_purchase(
    cloud: str, pages: dict[str, str], header: tuple[str, str], expected: tuple[str, str, str]
) -> None:
    with metadata(pages, header) as url:
        assert read_instance(CLOUDS[cloud], url, LIMITS) == HostIdentity(None, None, cloud, *expected)


def test_missing_and_unrecognised_values_of_a_metadata_service_are_unknown_and_not_guessed() -> None:
    pages = {**AWS, "/latest/meta-data/instance-life-cycle": "capacity-block"}
    del pages["/latest/meta-data/placement/region"]
    with metadata(pages, ("X-aws-ec2-metadata-token", TOKEN)) as url:
        instance = read_instance(CLOUDS["aws"], url, LIMITS)
    assert (instance.instance_type, instance.region, instance.purchase) == ("p5.48xlarge", None, None)
    with metadata({}, ("Metadata", "true")) as url, pytest.raises(ScrapeError, match="404"):
        read_instance(CLOUDS["azure"], url, LIMITS)


def never(cloud: Cloud) -> HostIdentity:
    raise AssertionError(f"{cloud.name} was asked")


def test_no_metadata_service_is_asked_unless_the_firmware_names_a_cloud(tmp_path: Path) -> None:
    root = firmware(tmp_path, sys_vendor="Microsoft Corporation", product_name="Virtual Machine")
    identity = LastingIdentity(True, root, instance=never)
    assert identity.look() == HostIdentity("Microsoft Corporation", "Virtual Machine") and identity.unavailable == ()
    assert LastingIdentity(True, tmp_path / "bare", instance=never).look() == HostIdentity()


def test_no_metadata_service_is_asked_while_the_setting_is_off_and_the_reason_names_it(tmp_path: Path) -> None:
    identity = LastingIdentity(
        False, firmware(tmp_path, sys_vendor="Amazon EC2", product_name="p5.48xlarge"), instance=never
    )
    assert identity.look() == HostIdentity("Amazon EC2", "p5.48xlarge", "aws")
    (missing,) = identity.unavailable
    assert missing.metric == "cloud" and "agent.cloud_metadata" in missing.reason


def test_a_silent_metadata_service_is_asked_again_later_and_one_that_answered_never_again(tmp_path: Path) -> None:
    clock, asked = ManualClock(), []

    def instance(cloud: Cloud) -> HostIdentity:
        asked.append(cloud.name)
        if len(asked) == 1:
            raise ScrapeError("timeout", "no whole reply within 1 s")
        return HostIdentity(cloud=cloud.name, instance_type="a3-highgpu-8g", region="us-central1", purchase="spot")

    root = firmware(tmp_path, sys_vendor="Google", product_name="Google Compute Engine")
    identity = LastingIdentity(True, root, clock, instance)
    for _ in range(2):
        assert identity.look().instance_type is None
    (missing,) = identity.unavailable
    assert "no whole reply within 1 s" in missing.reason and missing.remedy
    clock.now_s += 6
    for _ in range(2):
        assert identity.look().instance_type == "a3-highgpu-8g"
    assert identity.look().dmi_vendor == "Google" and identity.unavailable == () and asked == ["gcp", "gcp"]
