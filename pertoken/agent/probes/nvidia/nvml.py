"""The one way to the NVIDIA driver: every call counted, every error put in words, no hopeless call made twice.

Error semantics: nvml.h 12.9 and nvidia-ml-py 13.615.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pynvml

from pertoken.agent.readings import Unavailable


class Scope(Enum):
    """Scope of an error: one call, one device or the whole library."""

    CALL = "this device never answers this call"
    MOMENT = "this device did not answer this call this time"
    DEVICE = "this device answers nothing"
    LIBRARY = "no device answers until the library is initialised again"


@dataclass(frozen=True, slots=True)
class Fault:
    """A driver error in the words of a `Unavailable`."""

    scope: Scope
    status: str
    reason: str
    remedy: str | None = None
    code: int | None = None
    """NVML's, where it has no meaning of its own here."""

    def missing(self, metric: str) -> Unavailable:
        """Return the gap this fault leaves in a metric."""
        return Unavailable(metric, self.status, self.reason, self.remedy)


class NvmlFault(Exception):
    """A call that gave no value."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


_UPDATE = "update the NVIDIA driver"
NOT_SUPPORTED = Fault(Scope.CALL, "unsupported", "this GPU, or the mode it is in (MIG, vGPU), does not offer it")
LOST = Fault(
    Scope.DEVICE, "failing", "the GPU fell off the bus", "look for Xid lines in `dmesg`; a reboot may bring it back"
)
GONE = Fault(
    Scope.DEVICE, "failing", "the NVIDIA driver no longer lists this GPU", "it was pulled out, or see `dmesg` for why"
)
OUTDATED = Fault(
    Scope.LIBRARY,
    "failing",
    "the NVIDIA driver's library and its kernel module are of different versions",
    "reload the NVIDIA kernel modules or reboot",
)
DENIED = Fault(Scope.CALL, "denied", "the NVIDIA driver gives it only to a privileged user", "run the agent as root")
NO_ENTRY = Fault(
    Scope.LIBRARY,
    "denied",
    "this process may not open the NVIDIA driver's device nodes, so that nothing of its GPUs can be read",
    "rights to read and write /dev/nvidiactl and /dev/nvidia*; `pertoken agent install` gives them",
)
NONSENSE = Fault(Scope.MOMENT, "failing", "the NVIDIA driver's answer makes no sense", _UPDATE)
FAULTS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: DENIED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Fault(
        Scope.CALL, "missing", "the installed NVIDIA driver is too old to have it", _UPDATE
    ),
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Fault(
        Scope.CALL, "missing", "the installed NVIDIA driver has another version of this call", _UPDATE
    ),
    pynvml.NVML_ERROR_DEPRECATED: Fault(Scope.CALL, "unsupported", "the installed NVIDIA driver no longer offers it"),
    pynvml.NVML_ERROR_GPU_IS_LOST: LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: Fault(
        Scope.DEVICE, "failing", "the GPU needs a reset", "stop its processes, then `nvidia-smi --gpu-reset -i UUID`"
    ),
    pynvml.NVML_ERROR_UNINITIALIZED: Fault(
        Scope.LIBRARY, "failing", "the NVIDIA driver was reloaded", "nothing: it is initialised again shortly"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Fault(
        Scope.LIBRARY, "missing", "the NVIDIA kernel driver is not loaded", "load it: `modprobe nvidia`"
    ),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Fault(
        Scope.LIBRARY,
        "missing",
        "no NVIDIA driver library (libnvidia-ml.so.1) on this host",
        "with an NVIDIA GPU: install its driver; in a container: the NVIDIA container toolkit, capability `utility`",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: OUTDATED,
}


def fault_of(code: int) -> Fault:
    """Return what an error code of the driver means."""
    return FAULTS.get(code) or Fault(
        Scope.MOMENT, "failing", f"the NVIDIA driver answered error {code}", "see `dmesg` if it stays", code
    )


def _nonsense(error: Exception) -> Fault:
    return replace(NONSENSE, reason=f"{NONSENSE.reason} ({type(error).__name__})")


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A function of `pynvml` (or one of ours that raises its errors) with what follows the handle, and the value we
    keep of its answer."""

    function: str | Callable[..., Any]
    convert: Callable[[Any], Any] = lambda value: value
    arguments: tuple[int, ...] = ()
    sized: bool = False
    """Whether `pynvml` asks the driver twice for rows: how many, then which."""


class Nvml:
    """The gateway. `calls` counts the calls that reached the driver."""

    def __init__(self) -> None:
        self.calls = 0
        self._refused: defaultdict[str, dict[Hashable, Fault]] = defaultdict(dict)

    def ask(self, owner: str, call: Call, *before: Any) -> Any:
        """Return the converted answer of `call` with `before` (a handle) and its own arguments.

        Raises NvmlFault; without asking, if `owner` (a device's UUID) refused this call for good before.
        """
        if known := self._refused[owner].get(call):
            raise NvmlFault(known)
        try:
            function = getattr(pynvml, call.function) if isinstance(call.function, str) else call.function
            answer = function(*before, *call.arguments)
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
            fault = self._fault(error)
            if fault.scope is Scope.CALL:
                self.refuse(owner, call, fault)
            raise NvmlFault(fault) from None
        except Exception as error:  # a count of rows, a text or a number that Python cannot make anything of
            self.calls += 1
            raise NvmlFault(_nonsense(error)) from None
        self.calls += 2 if call.sized and answer else 1
        return call.convert(answer)

    def first(self, owner: str, calls: tuple[Call, ...], handle: Any) -> Any:
        """Return the answer of the first of `calls` that the device does not refuse for good.

        Raises NvmlFault: the refusal that explains most, when all refuse.
        """
        refusals = []
        for call in calls:
            try:
                return self.ask(owner, call, handle)
            except NvmlFault as error:
                if error.fault.scope is not Scope.CALL:
                    raise
                refusals.append(error)
        raise next((refusal for refusal in refusals if refusal.fault.status != "missing"), refusals[-1])

    def refusals(self, owner: str) -> Mapping[Hashable, Fault]:
        """Return calls, and parts of their answers, that `owner` never gives, with the reason."""
        return self._refused[owner]

    def refuse(self, owner: str, what: Hashable, fault: Fault) -> None:
        """Remember that `owner` never gives it."""
        self._refused[owner][what] = fault

    def forget(self) -> None:
        """Forget all refusals: another driver may answer."""
        self._refused.clear()

    def _fault(self, error: Exception) -> Fault:
        # pynvml raises an error of its own, no code in it, where an unversioned function is missing.
        code = getattr(error, "value", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if code not in (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND):
            self.calls += 1
        return fault_of(code)
