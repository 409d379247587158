"""Lines with a cursor: keys, clicks, scrolling and what is drawn."""

from textual.app import App, ComposeResult

from pertoken.tui.widgets.table import CursorLines


class Hundred(App[None]):
    CSS = """
    CursorLines { height: 11; width: 20; }
    CursorLines > .rows--cursor { text-style: reverse; }
    CursorLines > .rows--stale { color: red; }
    """

    def compose(self) -> ComposeResult:
        yield CursorLines("lines")

    def on_mount(self) -> None:
        lines = self.query_one(CursorLines)
        lines.replace_lines("name", [(f"line {n}", n == 3) for n in range(100)], 0)
        lines.focus()


def visible(lines: CursorLines) -> list[str]:
    return [lines.render_line(y).text.strip() for y in range(lines.size.height)]


async def test_keys_move_the_cursor_within_the_lines_and_scroll_to_it() -> None:
    async with Hundred().run_test() as pilot:
        lines = pilot.app.query_one(CursorLines)
        rows = []
        for key in ("up", "down", "pagedown", "pageup", "pageup", "ctrl+end", "down", "pageup", "ctrl+home"):
            await pilot.press(key)
            rows.append(lines.cursor_row)
            assert f"line {lines.cursor_row}" in visible(lines)
        assert rows == [0, 1, 11, 1, 0, 99, 99, 89, 0]


async def test_the_header_stays_while_lines_scroll_and_the_cursor_is_drawn_on_its_line() -> None:
    async with Hundred().run_test() as pilot:
        lines = pilot.app.query_one(CursorLines)
        lines.scroll_to(y=50, animate=False)
        await pilot.pause()
        assert visible(lines)[:2] == ["name", "line 50"]
        await pilot.press("ctrl+home")
        assert visible(lines)[1] == "line 0"
        styles = [next(iter(lines.render_line(y))).style for y in (1, 2, 4)]
        assert len({str(style) for style in styles}) == 3, "a cursor, a usual line and a stale one"


async def test_other_lines_keep_the_scrolled_offset_and_fewer_lines_move_the_cursor_to_the_last() -> None:
    async with Hundred().run_test() as pilot:
        lines = pilot.app.query_one(CursorLines)
        lines.move_cursor(60)
        before = visible(lines)
        lines.replace_lines("name", [(f"line {n}!", False) for n in range(100)], 60)
        assert [text.rstrip("!") for text in visible(lines)] == before
        lines.replace_lines("name", [("only", False)], 60)
        await pilot.pause()
        assert lines.cursor_row == 0 and visible(lines)[:2] == ["name", "only"]
        lines.replace_lines("name", [], 0)
        await pilot.press("down", "pageup")
        assert lines.cursor_row == 0 and visible(lines)[:2] == ["name", ""]
