from dataclasses import dataclass
from typing import Any, Literal

import pytest

from pertoken.rule import Deployment, Evidence, option, rule
from pertoken.settings.values import options_of, read_options
from tests.savings.fleets import llama
from tests.test_rule import DOC


@dataclass(frozen=True)
class Limits:
    share: float = option(0.5, "of the cache", low=0, high=1)
    ranks: int = option(2, "ranks", low=1)
    method: Literal["eagle", "ngram"] = option("ngram", "how tokens are drafted")
    careful: bool = True
    models: tuple[str, ...] = ()


def limited(seen: Evidence, now: Deployment, options: Limits) -> Any:
    yield now.but(tp=options.ranks)


limited.__doc__ = DOC


def test_a_rule_gets_the_defaults_of_its_options_and_what_a_person_set() -> None:
    made = rule("limited")(limited)
    assert made.needs == ("seen", "now")
    now = llama(1, (10, 11))
    assert [proposal.tp for proposal in made(seen=Evidence({}), now=now)] == [2]
    assert [proposal.tp for proposal in made.configured({"ranks": 4})(seen=Evidence({}), now=now)] == [4]
    assert made.options == Limits()


def test_options_of_each_type_are_read_as_their_dataclass_declares_them() -> None:
    values = {"share": 1, "ranks": 3, "method": "eagle", "careful": False, "models": ["a", "b"]}
    assert read_options(Limits, values) == Limits(1.0, 3, "eagle", False, ("a", "b"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 2}, "share: must be a number from 0 to 1 (got 2)"),
        ({"share": "half"}, "share: must be a number from 0 to 1 (got 'half')"),
        ({"share": True}, "share: must be a number from 0 to 1 (got True)"),
        ({"share": float("nan")}, "share: must be a number from 0 to 1 (got nan)"),
        ({"ranks": 0}, "ranks: must be a whole number, 1 or more (got 0)"),
        ({"ranks": 1.5}, "ranks: must be a whole number, 1 or more (got 1.5)"),
        ({"method": "medusa"}, "method: must be one of eagle, ngram (got 'medusa')"),
        ({"careful": 1}, "careful: must be true or false (got 1)"),
        ({"models": "a"}, "models: must be a list of texts (got 'a')"),
        ({"rank": 1}, "rank: no such option; there are share, ranks, method, careful, models"),
    ],
)
def test_an_option_of_another_type_or_range_is_refused_by_name_with_the_allowed_values(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        read_options(Limits, values)
    assert str(caught.value) == message


@dataclass(frozen=True)
class Supplied:
    share: float | None = option(None, "share of requests: count them", low=0, high=1)
    days: int | None = option(None, "days", low=1)


def test_a_number_that_only_a_person_knows_is_none_until_it_is_set() -> None:
    assert read_options(Supplied, {}) == Supplied(None, None)
    assert read_options(Supplied, {"share": 1, "days": 7}) == Supplied(1.0, 7)
    assert [(option.domain, option.optional) for option in options_of(Supplied)] == [
        ("a number from 0 to 1", True),
        ("a whole number, 1 or more", True),
    ]
    with pytest.raises(ValueError, match="days: must be a whole number, 1 or more"):
        read_options(Supplied, {"days": 0})


def test_a_rule_without_options_refuses_any() -> None:
    def plain(now: Deployment) -> Any:
        yield now

    plain.__doc__ = DOC
    with pytest.raises(ValueError, match="share: the rule has no options"):
        rule("plain")(plain).configured({"share": 1})


def _mutable() -> Any:
    @dataclass
    class Options:
        share: float = 0.5

    return Options


def _without_default() -> Any:
    @dataclass(frozen=True)
    class Options:
        share: float

    return Options


def _of_another_type() -> Any:
    @dataclass(frozen=True)
    class Options:
        share: dict[str, int] | None = None

    return Options


def _out_of_its_own_range() -> Any:
    @dataclass(frozen=True)
    class Options:
        share: float = option(2, "of the cache", high=1)

    return Options


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (_mutable, "Options must be a frozen dataclass"),
        (_without_default, "option share needs a default"),
        (_of_another_type, "option share: use bool, int"),
        (_out_of_its_own_range, "option share: must be a number, 1 or less"),
        (lambda: 42, "42 must be a frozen dataclass"),
        (lambda: "NoSuchClass", "name 'NoSuchClass' is not defined"),
    ],
)
def test_options_that_could_not_be_read_from_a_file_are_refused_where_the_rule_is_defined(
    made: Any, message: str
) -> None:
    def wrong(options: Any) -> Any: ...

    wrong.__doc__ = DOC
    wrong.__annotations__["options"] = made()
    with pytest.raises(ValueError, match=f"rule wrong: the annotation of `options`: {message}"):
        rule("wrong")(wrong)


def test_a_plain_default_is_an_option_without_bounds_or_meaning() -> None:
    careful = options_of(Limits)[3]
    assert (careful.name, careful.default, careful.domain, careful.meaning) == ("careful", True, "true or false", "")
