"""A bill by tenant as text."""

from pertoken.costs.spend import UNATTRIBUTED, Spend, SpendLine
from pertoken.text.costs import spend_summary
from pertoken.units import NANO_USD


def test_a_bill_has_its_lines_their_share_and_its_sum() -> None:
    lines = (
        SpendLine("alpha / prod", 75 * NANO_USD, 30_000_000, "alpha", "prod"),
        SpendLine(UNATTRIBUTED, 25 * NANO_USD, 0),
    )
    shown = spend_summary(Spend("tenant", 0, 7200, 100 * NANO_USD, lines, ("A note.",)), None).splitlines()
    assert shown == [
        "1970-01-01 00:00Z to 1970-01-01 02:00Z, by tenant",
        "  tenant        dollars   share  tokens  $/Mtok",
        "  alpha / prod   $75.00   75.0%     30M   $2.50",
        "  unattributed   $25.00   25.0%       0        ",
        "  together         $100  100.0%",
        "A note.",
    ][:3] + shown[3:5] + ["A note."]
    assert shown[3].split() == ["unattributed", "$25.00", "25.0%", "0"]
    assert shown[4].split() == ["together", "$100", "100.0%"]


def test_names_of_tenants_do_not_control_the_terminal() -> None:
    bill = Spend("team", 0, 3600, NANO_USD, (SpendLine("\x1b[31mred", NANO_USD, 1),))
    assert "\x1b" not in spend_summary(bill, 80)


def test_a_missing_price_or_record_is_noted() -> None:
    assert "$" not in spend_summary(Spend("team", 0, 3600, None, (SpendLine("a", 0, 5),)), None).split("\n")[2]
    assert "Nothing was recorded" in spend_summary(Spend("team", 0, 3600, None, ()), None)
