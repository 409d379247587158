"""Shape and weight types of a served model, read from the headers of its files; tensors are never read."""

import pwd
from collections.abc import Iterable
from pathlib import Path

from pertoken.agent.checkpoints.bounded import FileRefused, opened
from pertoken.agent.checkpoints.facts import Checkpoint
from pertoken.agent.checkpoints.gguf_file import read_gguf
from pertoken.agent.checkpoints.hugging_face import read_folder
from pertoken.agent.host.processes import environment

_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME")
"""Where models that are named by repository are kept, by the variables of huggingface_hub; the first that is set
decides."""


def read_checkpoint(path: str, pid: int) -> Checkpoint:
    """Return the model at `path` as the process `pid` sees it: a GGUF file, a folder, or a repository id in its cache.

    None of the files can make this fail; one that is too large, broken or no file at all is a reason.
    """
    checkpoint = _read(_places(path, pid), path)
    return checkpoint or Checkpoint(reason=f"{path}: not found among the files of process {pid}")


def read_files(path: Path) -> Checkpoint:
    """Read the model in a GGUF file or folder of this process. As `read_checkpoint`, it never fails."""
    return _read([path], str(path)) or Checkpoint(reason=f"{path}: no such file or folder")


def _read(places: Iterable[Path], path: str) -> Checkpoint | None:
    """Return the first of the places that there is; None if there is none."""
    try:
        for place in places:
            if place.is_dir():
                return read_folder(place)
            if place.is_file():
                return read_gguf(place)
    except FileRefused as error:
        return Checkpoint(reason=f"{path}: {error}")
    except OSError as error:
        return Checkpoint(reason=f"{path}: cannot be read here: {error.strerror}")
    return None


def _places(path: str, pid: int) -> list[Path]:
    """Return where the model may lie: a process in a container sees other files than this agent, so its root is
    taken."""
    root = Path(f"/proc/{pid}/root")
    path = path.removeprefix("hf://")
    if path.startswith("/"):
        return [root / path[1:]]
    places = [Path(f"/proc/{pid}/cwd") / path]
    if path.count("/") == 1:
        places += _snapshot(root / _hub(pid).lstrip("/") / f"models--{path.replace('/', '--')}")
    return places


def _hub(pid: int) -> str:
    """Return the cache of huggingface_hub in the process's own file system."""
    variables = environment(pid, _VARIABLES)
    if cache := variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE"):
        return cache
    home = variables.get("HOME") or _home(pid)
    return f"{variables.get('HF_HOME') or (variables.get('XDG_CACHE_HOME') or f'{home}/.cache') + '/huggingface'}/hub"


def _snapshot(repository: Path) -> list[Path]:
    """Return the revision that is served: the only one there is, else that of `main`; among others the served one is
    unknown."""
    snapshots = list((repository / "snapshots").glob("*"))
    if len(snapshots) == 1:
        return snapshots
    try:
        with opened(repository / "refs/main") as file:
            main = file.read(41).decode(errors="replace").strip()
    except (OSError, FileRefused):
        return []
    return [snapshot for snapshot in snapshots if snapshot.name == main]


def _home(pid: int) -> str:
    """Return home folder of the process's user."""
    try:
        return pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_dir
    except KeyError:
        return "/root"
