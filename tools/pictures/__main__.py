"""Write `docs/pictures`: `python -m tools.pictures`; with `demo`, the recording of a demo instead, which is of now."""

import sys

from tools.pictures.draw import FOLDER, PICTURES, drawn
from tools.pictures.recording import FILE, recorded

FOLDER.mkdir(exist_ok=True)
if sys.argv[1:] == ["demo"]:
    FILE.write_text(recorded())
else:
    for picture in PICTURES:
        (FOLDER / f"{picture.name}.svg").write_text(drawn(picture))
