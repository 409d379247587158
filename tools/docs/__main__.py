"""Write the reference pages: `python -m tools.docs`."""

from tools.docs import figures
from tools.docs.pages import FOLDER, pages

for name, text in pages().items():
    (FOLDER / name).write_text(text)
for name in figures.PAGES:
    page = figures.ROOT / name
    page.write_text(figures.filled(page.read_text()))
