"""Replicas that need fewer devices leave whole hosts."""

from pertoken.savings.changes.replicas import packed
from tests.savings.fleets import AWS_H100, chat, context, replicas

FOUR = replicas(4)


def test_replicas_of_one_device_share_hosts_so_that_others_become_free() -> None:
    like = chat(FOUR).deployments[0].but(tp=1)
    placed = packed(FOUR, chat(FOUR).deployments, like, 4, context(FOUR))
    assert [deployment.device_ids for deployment in placed.placed] == [(10,), (11,), (20,), (21,)]
    assert placed.missing == 0


def test_the_cheapest_hosts_are_filled_first_and_what_finds_no_room_is_counted() -> None:
    known = context(FOUR)
    prices = {device: AWS_H100 // (2 if device in (40, 41) else 1) for device in known.nano_usd_per_hour}
    cheaper = context(FOUR)
    cheaper.nano_usd_per_hour.update(prices)  # type: ignore[attr-defined]  # a dict, as `context` makes it
    like = chat(FOUR).deployments[0].but(tp=1)
    placed = packed(FOUR, chat(FOUR).deployments, like, 9, cheaper)
    assert [deployment.device_ids for deployment in placed.placed][:2] == [(40,), (41,)]
    assert placed.missing == 1
