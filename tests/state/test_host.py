import pytest

from pertoken.state.deployment import InvalidEdit
from pertoken.state.fleet import MAX_PARTITIONS, Device, Partition, accelerators, divided

GPU = Device(3, "GPU 3", 1)


def test_a_device_is_divided_into_partitions_with_ids_that_nothing_else_has() -> None:
    parts = divided(GPU, ("3g.40gb", "1g.10gb"), {-1, 7}).partitions
    assert parts == (Partition(-2, "3g.40gb"), Partition(-3, "1g.10gb"))


@pytest.mark.parametrize(
    ("device", "profiles", "reason"),
    [
        (divided(GPU, ("CPX",), ()), ("CPX",), "GPU 3 is divided already"),
        (GPU, (), "name the profile of each partition"),
        (GPU, ("3g.40gb", "a profile"), "name the profile of each partition"),
        (GPU, ("1g.10gb",) * (MAX_PARTITIONS + 1), "at most 8 partitions"),
    ],
)
def test_a_division_that_is_impossible_is_refused(device: Device, profiles: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InvalidEdit, match=reason):
        divided(device, profiles, ())


def test_the_cpus_of_a_host_decide_whether_it_is_used_only_where_it_has_no_other_device() -> None:
    cpu = Device(4, "CPU", 1, kind="cpu")
    assert accelerators((GPU, cpu)) == {3}
    assert accelerators((cpu,)) == {4}
