"""Read by any Python that starts with this folder on PYTHONPATH: its driver library is then the stand-in."""

import ctypes
import json
import os
import time
from typing import Any

_real = ctypes.CDLL
_given = json.loads(os.environ["PERTOKEN_STANDIN_NVML"])


class _StandIn(_real):
    def __new__(cls, name: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if name != "libnvidia-ml.so.1":
            return super().__new__(cls)
        if _given["absent"]:
            raise OSError(f"{name}: cannot open shared object file")
        from tests.standin_nvml.library import Library
        from tests.standin_nvml.machine import Machine

        return Library(Machine.from_json(_given), time.time)


ctypes.CDLL = _StandIn  # type: ignore[misc]
