import pytest

from pertoken.catalog.instances import GIB, InstanceSize, instance_size
from pertoken.catalog.offers import listed_offers, rows


def test_a_size_has_the_cpus_and_the_memory_of_its_type() -> None:
    assert instance_size("aws", "p5.4xlarge") == InstanceSize(16, 256 * GIB)


def test_a_type_that_is_not_listed_has_no_size() -> None:
    assert instance_size("aws", "p5.2xlarge") is None
    assert instance_size("gcp", "p5.4xlarge") is None


def test_each_size_is_of_a_type_with_a_price_and_has_a_source_and_a_date() -> None:
    priced = {(offer.provider, offer.instance_type) for offer in listed_offers()}
    table = rows("instances.csv")
    keys = [(row["provider"], row["instance_type"]) for row in table]
    assert len(set(keys)) == len(keys) and set(keys) <= priced
    assert all(row["source"] and row["as_of"] for row in table)


@pytest.mark.parametrize(("small", "large"), [("g6e.xlarge", "g6e.48xlarge"), ("p5.4xlarge", "p5.48xlarge")])
def test_a_smaller_type_has_less_memory_and_fewer_cpus(small: str, large: str) -> None:
    less, more = instance_size("aws", small), instance_size("aws", large)
    assert less is not None and more is not None
    assert less.cpus < more.cpus and less.memory_bytes < more.memory_bytes
