"""Names that are cut stay distinct."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pertoken.text.columns import MARK, cut_apart

HOSTS = tuple(f"gpu-node-{n:02}.cluster.example.com" for n in range(1, 17))


def test_hosts_of_one_domain_stay_apart_in_any_usual_width() -> None:
    for width in range(8, 30):
        for keep_end in (False, True):
            shown = cut_apart(HOSTS, width, keep_end)
            assert len(set(shown)) == len(HOSTS), (width, shown)
            assert all(f"{n:02}" in text for n, text in enumerate(shown, 1))


def test_in_the_fewest_cells_the_whole_number_that_differs_stays() -> None:
    assert cut_apart(("gpu-node-02.example.com", "gpu-node-10.example.com"), 6) == ("…-02.…", "…-10.…")


def test_devices_of_two_kinds_in_one_slot_stay_apart() -> None:
    devices = tuple(f"NVIDIA {kind} 80GB HBM3 #{slot}" for kind in ("H100", "H200") for slot in range(8))
    for width in (14, 16, 20):
        shown = cut_apart(devices, width, True)
        assert len(set(shown)) == len(devices), shown
        assert all(text.endswith(f"#{n % 8}") for n, text in enumerate(shown))


def test_a_name_that_differs_at_its_end_keeps_the_end() -> None:
    models = ("meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-8B")
    assert cut_apart(models, 18, True) == ("…-3.3-70B-Instruct", "Qwen/Qwen3-8B")
    assert cut_apart(("Release the idle device",), 14) == ("Release the i…",)


def test_wide_characters_count_by_their_cells() -> None:
    shown = cut_apart(("模型服务器一号机器", "模型服务器二号机器"), 9)
    assert len(set(shown)) == 2
    assert all(cell_len(text) <= 9 and MARK in text for text in shown)


def test_equal_names_look_equal_and_short_ones_are_whole() -> None:
    assert cut_apart(("a" * 20, "a" * 20, "b"), 5) == ("aaaa…", "aaaa…", "b")
    assert cut_apart(("abc",), 0) == ("",)


@given(st.lists(st.text(max_size=60), max_size=12), st.integers(1, 30), st.booleans())
def test_no_cut_is_wider_than_asked(texts: list[str], width: int, keep_end: bool) -> None:
    shown = cut_apart(tuple(texts), width, keep_end)
    assert all(cell_len(text) <= width for text in shown)
    assert [text for text in texts if cell_len(text) <= width] == [
        short for text, short in zip(texts, shown, strict=True) if cell_len(text) <= width
    ]


def test_very_long_names_cost_little() -> None:
    names = tuple("x" * 5000 + str(n) + "y" * 5000 for n in range(50))
    assert len(cut_apart(names, 12)) == 50
