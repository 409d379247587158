from pertoken.testing import regimes


def test_each_replica_has_its_own_earlier_epochs_and_their_service_has_them_all() -> None:
    upgraded = regimes()["upgraded-dearer"]
    of_each = [upgraded.of("deployment", deployment_id).epochs for deployment_id in (1, 2)]
    assert [[epoch.deployment_id for epoch in epochs] for epochs in of_each] == [[1], [2]]
    assert upgraded.of("service", "chat").epochs == (*of_each[0], *of_each[1])
    one = regimes()["upgraded-one"]
    assert [len(one.of("deployment", deployment_id).epochs) for deployment_id in (1, 2)] == [1, 0]


def test_a_regime_without_epochs_is_one_in_which_nothing_changed() -> None:
    assert regimes()["upgraded-dearer"].without("epochs").of("deployment", 1).epochs == ()
    assert regimes()["upgraded-dearer"].without("running").of("deployment", 1).epochs
