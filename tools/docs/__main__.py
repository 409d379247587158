"""Write the reference pages: `python -m tools.docs`."""

from tools.docs.pages import FOLDER, pages

for name, text in pages().items():
    (FOLDER / name).write_text(text)
