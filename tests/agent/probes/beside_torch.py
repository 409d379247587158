"""Import torch as a ROCm build does, and ask vLLM for its platform, in the environment of `tests.vllm`.

`python beside_torch.py FOLDER`: `FOLDER` holds the package `amdsmi` and nothing else. torch for CPUs is given a HIP
version while it is imported, so that `torch.cuda` takes the path of a ROCm build. Prints JSON.
"""

import importlib.abc
import importlib.machinery
import json
import sys
from types import ModuleType
from typing import Any


class HipVersion(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Load `torch.version` with the HIP version of a ROCm build."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "torch.version":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None
        self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> None: ...

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        module.hip = "7.0.0"  # type: ignore[attr-defined]


def main() -> None:
    if sys.argv[1:]:
        sys.path.append(sys.argv[1])
    sys.meta_path.insert(0, HipVersion())
    try:
        import torch
    except Exception as error:
        print(json.dumps({"torch": repr(error)}))
        return
    from vllm.platforms import rocm_platform_plugin  # type: ignore[import-not-found]

    cuda = torch.cuda
    print(json.dumps({"torch": "imported", "amdsmi": cuda._HAS_AMDSMI, "vllm": rocm_platform_plugin()}))


if __name__ == "__main__":
    main()
