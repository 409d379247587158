"""Reasons why a file of the database cannot be opened or written, where SQLite reports only that it cannot."""

import os
from pathlib import Path


def trouble(file: Path, *, writing: bool) -> str | None:
    """Return what is in the way of a file and what to do about it; None if nothing is found."""
    folder = file.parent
    for ancestor in (*reversed(folder.absolute().parents), folder):
        if ancestor.is_dir() and not os.access(ancestor, os.X_OK):
            return (
                f"{ancestor} may not be entered by this user (uid {os.geteuid()}): run as its owner or join its group"
            )
    if file.is_dir():
        return f"{file} is a folder; move it away"
    if not folder.is_dir():
        return f"{folder} is no folder" if folder.exists() else f"there is no folder {folder}"
    if file.exists() and not os.access(file, os.R_OK):
        return f"{file} may not be read by this user (uid {os.geteuid()}): run as its owner or join its group"
    disk = os.statvfs(folder)
    read_only = bool(disk.f_flag & os.ST_RDONLY)
    if read_only and writing:
        return f"{folder} is on a disk that is mounted read-only: mount it for writing, or choose another --db"
    if not read_only and disk.f_files and not disk.f_favail:
        return f"the disk of {folder} has no inodes left, so that no file can be made: delete files there"
    if not read_only and not disk.f_bavail:
        return f"the disk of {folder} is full: make room there"
    # Readers make the index of the log where there is none.
    if not os.access(folder, os.W_OK) or (writing and file.exists() and not os.access(file, os.W_OK)):
        return f"{folder} may not be written by this user (uid {os.geteuid()}): run as its owner or join its group"
    return None
