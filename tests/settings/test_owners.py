import pytest

from pertoken.settings.owners import BASES, is_basis, read_owner, read_owner_budgets, read_shared


@pytest.mark.parametrize("basis", [*BASES, "label:team", "label:app.kubernetes.io/part-of"])
def test_a_basis_is_a_word_or_the_name_of_a_pod_label(basis: str) -> None:
    assert is_basis(basis)


@pytest.mark.parametrize("basis", ["label:", "label:a b", "label:-x", "label:a/b/c", "pod", ""])
def test_anything_else_is_no_basis(basis: str) -> None:
    assert not is_basis(basis)


def test_an_owner_is_written_as_its_basis_and_name() -> None:
    assert read_owner(" label:team = search ") == ("label:team", "search")
    assert read_owner("workload=prod/chat=1") == ("workload", "prod/chat=1")


@pytest.mark.parametrize("text", ["prod", "namespace=", "team=search", "label:=x", 7])
def test_a_text_that_is_no_owner_is_refused_with_the_form(text: object) -> None:
    with pytest.raises(ValueError, match="namespace=prod"):
        read_owner(text)


def test_budgets_of_owners_are_dollars_above_zero() -> None:
    assert read_owner_budgets({"namespace = prod": 5}) == (("namespace=prod", 5.0),)
    for wrong in ({"namespace=prod": 0}, {"namespace=prod": True}, {"namespace=prod": "5"}, {"prod": 5}, ["x"]):
        with pytest.raises(ValueError, match=r"must be"):
            read_owner_budgets(wrong)


def test_shared_lines_are_owners_models_or_what_nobody_holds() -> None:
    rows = [{"line": "namespace=gateway", "by": "tokens"}, {"line": "unallocated"}, {"line": "model=router"}]
    read = read_shared(rows)
    assert [(row.line, row.by) for row in read] == [
        ("namespace=gateway", "tokens"),
        ("unallocated", "dollars"),
        ("model=router", "dollars"),
    ]
    for wrong in (
        {"line": "gateway"},
        {"line": "model="},
        {"line": "unallocated", "by": "x"},
        {"by": "equal"},
        {"a": 1},
        1,
    ):
        with pytest.raises(ValueError, match=r"must be|no such key"):
            read_shared([wrong])
