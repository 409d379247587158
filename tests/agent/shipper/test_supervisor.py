"""The agent's side of shipping: what it knows of its child."""

import io
from pathlib import Path

from pertoken.agent.shipper.supervisor import Shipping
from pertoken.store.connect.server import Server, server_url
from tests.recorded import until
from tests.store.filled import filled


def test_a_server_that_is_not_there_is_a_fault_until_one_acknowledges_something(tmp_path: Path) -> None:
    filled(tmp_path, 6)
    shipping = Shipping(tmp_path, Server(server_url("postgresql://someone@127.0.0.1:1/none", "test")), every_s=0.1)
    try:
        assert shipping.fault is None
        shipping.poll()
        until(lambda: shipping.fault is not None, "the fault")
        assert "nothing is shipped" in str(shipping.fault)
    finally:
        shipping.close()
    shipping._listen(io.BytesIO(b"{}\n"))  # a sign of life
    assert shipping.fault is not None
    shipping._listen(io.BytesIO(b'{"acked": 7}\n'))
    assert shipping.fault is None
