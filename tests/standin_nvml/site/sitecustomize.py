"""Read by any Python that starts with this folder on PYTHONPATH: its driver library is then the stand-in."""

import ctypes
from typing import Any

_real = ctypes.CDLL


class _StandIn(_real):
    def __new__(cls, name: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if name != "libnvidia-ml.so.1":
            return super().__new__(cls)
        from tests.standin_nvml.controlled import Controlled

        library = Controlled()
        if library.machine.absent:
            raise OSError(f"{name}: cannot open shared object file")
        return library


ctypes.CDLL = _StandIn  # type: ignore[misc]
