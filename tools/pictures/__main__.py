"""Write `docs/pictures`: `python -m tools.pictures`."""

from tools.pictures.draw import FOLDER, PICTURES, drawn

FOLDER.mkdir(exist_ok=True)
for picture in PICTURES:
    (FOLDER / f"{picture.name}.svg").write_text(drawn(picture))
