from pertoken.testing import regimes


def test_each_replica_has_its_own_earlier_epochs_and_their_service_has_them_all() -> None:
    there = regimes()["upgraded-dearer"]
    of_each = [there.of("deployment", each).epochs for each in (1, 2)]
    assert [[epoch.deployment_id for epoch in each] for each in of_each] == [[1], [2]]
    assert there.of("service", "chat").epochs == (*of_each[0], *of_each[1])
    one = regimes()["upgraded-one"]
    assert [len(one.of("deployment", each).epochs) for each in (1, 2)] == [1, 0]


def test_a_regime_without_epochs_is_one_in_which_nothing_changed() -> None:
    assert regimes()["upgraded-dearer"].without("epochs").of("deployment", 1).epochs == ()
    assert regimes()["upgraded-dearer"].without("running").of("deployment", 1).epochs
