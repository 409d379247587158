"""Pseudonyms of names, addresses and ids."""

import pytest

from pertoken.store.export.anonymous import Pseudonyms, published
from pertoken.store.schema.shared import stable_id

NAMES = Pseudonyms(b"a key of the test", published)


def test_one_name_has_one_pseudonym_under_a_key_and_another_under_another() -> None:
    again = Pseudonyms(b"a key of the test", published)
    assert NAMES.name("globex") == again.name("globex") != Pseudonyms(b"another key", published).name("globex")
    assert NAMES.id(2**62) == again.id(2**62) != Pseudonyms(b"another key", published).id(2**62)


def test_an_id_is_not_found_by_guessing_the_name_it_is_made_of() -> None:
    guess = stable_id("host", "globex-01")
    pseudonym = NAMES.name("globex-01", "host")
    assert NAMES.id(guess) not in (guess, stable_id("host", pseudonym))


def test_a_device_has_the_id_of_its_pseudonym_so_that_links_find_it() -> None:
    NAMES.learn("device", "GPU-globex")
    NAMES.learn_device(stable_id("device", "GPU-globex"), "GPU-globex")
    assert NAMES.id(stable_id("device", "GPU-globex")) == stable_id("device", NAMES.name("GPU-globex"))


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.3-70B", "Qwen/Qwen2.5-7B-Instruct", "NVIDIA H100 80GB HBM3"])
def test_a_published_name_stays(name: str) -> None:
    assert NAMES.name(name) == name


def test_a_path_keeps_the_published_model_that_it_ends_in() -> None:
    kept = NAMES.name("/srv/globex/Llama-3.3-70B-Instruct", "model")
    assert kept.startswith("model-") and kept.endswith("/Llama-3.3-70B") and "globex" not in kept
    assert "globex" not in NAMES.name("globex/Llama-3.3-70B-Instruct")


def test_a_url_keeps_its_scheme_port_and_usual_page() -> None:
    assert NAMES.url("http://127.0.0.1:8000/metrics") == "http://127.0.0.1:8000/metrics"
    kept = NAMES.url("https://user:globex@gw.globex.com:4000/globex/metrics?key=globex#x")
    assert kept is not None and kept.startswith("https://address-") and ":4000/" in kept and "/metrics?" in kept
    assert "globex" not in kept and "user" not in kept
    assert NAMES.url("http://GW.globex.com:4000") == NAMES.url("http://gw.globex.com:4000")
    assert NAMES.url("no address") is None


@pytest.mark.parametrize("address", ["localhost:8000", "127.1.2.3", "[::1]:80", "0.0.0.0:8000"])
def test_an_address_that_every_host_has_stays(address: str) -> None:
    assert NAMES.address(address) == address
