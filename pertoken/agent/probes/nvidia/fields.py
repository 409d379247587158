"""Power, energy and memory errors of a GPU by NVML field values: many in one driver call, each with its own error.

Scopes of power: 0 the GPU, 1 the whole module (with the CPU of a GH200), 2 the memory. Source: nvml.h 12.9.
"""

from dataclasses import dataclass
from math import isfinite, nan
from struct import Struct
from typing import Any

import pynvml

from pertoken.agent.probes.nvidia.nvml import NONSENSE, NOT_SUPPORTED, Call, Fault, Nvml, NvmlFault, Scope, fault_of
from pertoken.agent.readings import Unavailable


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field value: the word we have for it, its id and its scope."""

    metric: str
    field_id: int
    scope: int = 0


AVERAGE = Field("power_average_mw", pynvml.NVML_FI_DEV_POWER_AVERAGE)
INSTANT = Field("power_instant_mw", pynvml.NVML_FI_DEV_POWER_INSTANT)
MODULE = Field("power_module_mw", pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_POWER_SCOPE_MODULE)
MEMORY = Field("power_memory_mw", pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_POWER_SCOPE_MEMORY)
ENERGY = Field("energy_mj", pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)
TICK = (AVERAGE, INSTANT, MODULE, MEMORY, ENERGY)
"""Read every time."""
SLOW = (
    Field("ecc_corrected", pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL),
    Field("ecc_uncorrected", pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL),
)
"""Read in the same call when the processes are."""
ALL = (*TICK, *SLOW)
_POWER, _ENERGY = Call("nvmlDeviceGetPowerUsage"), Call("nvmlDeviceGetTotalEnergyConsumption")
_ENTRY = Struct("@24xII8x")
"""`nvmlFieldValue_t`: the type of its value, and its error."""
_VALUE_AT = 32
_NUMBER = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: Struct("d"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: Struct("I"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: Struct("L"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: Struct("Q"),
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: Struct("q"),
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: Struct("i"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: Struct("H"),
}


class FieldRequest:
    """The structs that some fields of one GPU are asked with, their ids filled in once.

    `pynvml` fills them in again each time and reads them through Python, which costs more than all the other calls.
    """

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self._entries = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for entry, field in zip(self._entries, fields, strict=True):
            entry.fieldId, entry.scopeId = field.field_id, field.scope

    def ask(self, handle: Any) -> list[tuple[int, int | None]]:
        """Return (error code, value) of each field; None for a value that is no number. Raises `pynvml.NVMLError`."""
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        pynvml._nvmlCheckReturn(function(handle, len(self.fields), self._entries))
        return [
            (code, None if code else _number(kind, self._entries, at * _ENTRY.size + _VALUE_AT))
            for at, (kind, code) in enumerate(_ENTRY.iter_unpack(self._entries))
        ]


def _number(kind: int, entries: Any, at: int) -> int | None:
    """Return the value of a field, as its type demands; None for NaN, infinity and types that NVML does not define."""
    number = _NUMBER.get(kind)
    value = number.unpack_from(entries, at)[0] if number is not None else nan
    return int(value) if isfinite(value) else None


_VALUES = Call(lambda handle, request: request.ask(handle))


Requests = dict[tuple[Field, ...], FieldRequest]
"""Those made for one GPU so far, by the fields they ask for."""


def read_fields(
    nvml: Nvml, uuid: str, handle: Any, fields: tuple[Field, ...], requests: Requests
) -> tuple[dict[str, Any], dict[str, Unavailable]]:
    """Return values by metric with their `power_source` and `energy_source`, and the gaps in them.

    `power_mw` is the GPU's 1 s average where it has one (its mean over a second is what an integral needs), else
    what it draws at the instant, else the plain reading. Drivers without field values, and GPUs without these, are
    asked the older calls. Raises NvmlFault if the device or the library fails.
    """
    values, unavailable = _values(nvml, uuid, handle, fields, requests)
    module = MODULE.metric in values
    average = values.pop(AVERAGE.metric, None)
    hidden = unavailable.pop(AVERAGE.metric, None)
    if average is not None:
        values |= {"power_mw": average, "power_source": "average, gpu"}
    elif INSTANT.metric in values:
        values |= {"power_mw": values[INSTANT.metric], "power_source": "instant, gpu"}
    elif hidden:
        # The plain reading covers what the module draws, where there is one.
        _fall_back(nvml, uuid, handle, _POWER, "power_mw", values, unavailable)
        if "power_mw" in values:
            values["power_source"] = "usage, module" if module else "usage, gpu"
    if ENERGY.metric in unavailable:
        _fall_back(nvml, uuid, handle, _ENERGY, ENERGY.metric, values, unavailable)
    if ENERGY.metric in values:
        values["energy_source"] = "module" if module else "gpu"
    return values, unavailable


def _values(
    nvml: Nvml, uuid: str, handle: Any, fields: tuple[Field, ...], requests: Requests
) -> tuple[dict[str, Any], dict[str, Unavailable]]:
    refused = nvml.refusals(uuid)
    unavailable = {field.metric: refused[field].missing(field.metric) for field in fields if field in refused}
    values: dict[str, Any] = {}
    asked = tuple(field for field in fields if field not in refused)
    if not asked:
        return values, unavailable
    request = requests.get(asked) or requests.setdefault(asked, FieldRequest(asked))
    try:
        answer = nvml.ask(uuid, _VALUES, handle, request)
    except NvmlFault as error:
        if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
            raise
        return values, unavailable | {field.metric: error.fault.missing(field.metric) for field in asked}
    for field, (code, value) in zip(asked, answer, strict=True):
        if value is not None:
            values[field.metric] = value
            continue
        fault = _fault(code) if code else NONSENSE
        if fault.scope is Scope.CALL:
            nvml.refuse(uuid, field, fault)
        unavailable[field.metric] = fault.missing(field.metric)
    return values, unavailable


def _fault(code: int) -> Fault:
    # Drivers that do not know a field or a scope call it an invalid argument.
    return NOT_SUPPORTED if code == pynvml.NVML_ERROR_INVALID_ARGUMENT else fault_of(code)


def _fall_back(
    nvml: Nvml,
    uuid: str,
    handle: Any,
    call: Call,
    metric: str,
    values: dict[str, Any],
    unavailable: dict[str, Unavailable],
) -> None:
    try:
        values[metric] = nvml.ask(uuid, call, handle)
        unavailable.pop(metric, None)
    except NvmlFault as error:
        if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
            raise
        unavailable[metric] = error.fault.missing(metric)
