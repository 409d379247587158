"""What the files of a served model tell of it: its shape and the type of its weights. Headers only, never tensors."""

import pwd
from dataclasses import dataclass, field
from pathlib import Path

from pertoken.agent.checkpoints.bounded import FileRefused
from pertoken.agent.checkpoints.gguf_file import read_gguf
from pertoken.agent.checkpoints.hugging_face import read_folder

HUB = ".cache/huggingface/hub"
"""Where models that are named by repository are kept, under the home of the user who serves them."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What could be read. A fact that the files do not tell is absent."""

    facts: dict[str, object] = field(default_factory=dict)
    """Fields of `Model`."""
    quantized: bool = False
    """Whether its weights are stored in fewer bits, which fixes `dtype` whatever the engine is told."""
    dtype: str | None = None
    """Weight dtype, in our words."""
    reason: str | None = None
    """Why nothing could be read."""


def read_checkpoint(path: str, pid: int) -> Checkpoint:
    """The model at `path` as the process `pid` sees it: a GGUF file, a folder, or a repository id in its cache.

    None of the files can make this fail; one that is too large, broken or no file at all is a reason.
    """
    try:
        for place in _places(path, pid):
            if place.is_dir():
                return Checkpoint(*read_folder(place))
            if place.is_file():
                return Checkpoint(*read_gguf(place))
    except FileRefused as error:
        return Checkpoint(reason=f"{path}: {error}")
    except OSError as error:
        return Checkpoint(reason=f"{path}: cannot be read here: {error.strerror}")
    return Checkpoint(reason=f"{path}: not found among the files of process {pid}")


def _places(path: str, pid: int) -> list[Path]:
    """Where the model may lie: a process in a container sees other files than this agent, so its root is taken."""
    root = Path(f"/proc/{pid}/root")
    if path.startswith("/"):
        return [root / path[1:]]
    places = [Path(f"/proc/{pid}/cwd") / path]
    if path.count("/") == 1:
        snapshots = list((root / _home(pid) / HUB / f"models--{path.replace('/', '--')}" / "snapshots").glob("*"))
        # Which of several revisions is served, nobody told.
        places += snapshots if len(snapshots) == 1 else []
    return places


def _home(pid: int) -> str:
    """Home folder of the process's user, relative to the root."""
    try:
        return pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_dir.lstrip("/")
    except KeyError:
        return "root"
