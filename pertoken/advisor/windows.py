"""Evidence of a window by subject: of the run's window, and of other windows that rules ask for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pertoken.advisor.present import Present
from pertoken.advisor.worker.inputs import Measured, MeasuredWindow, SubjectKey
from pertoken.evidence import Evidence
from pertoken.store.connect.open import Store
from pertoken.units import format_duration
from pertoken.window.parts import EARLY_PARTS, ROWS
from pertoken.window.progress import Progress
from pertoken.window.reading import NOTHING_ELSEWHERE, Waiting, Window


def first_parts(window_s: int, run_s: int) -> Sequence[str]:
    """Return the parts of another window that are read before a rule reads them; of a short one all rows.

    Both are in seconds, the length of the window and that of the run's window.
    """
    return EARLY_PARTS if window_s > run_s else ROWS


def measured(gathered: Present) -> Measured:
    """Return the evidence of the run's window, by subject."""
    context = gathered.context
    return {
        **{("deployment", key): evidence for key, evidence in context.deployments.items()},
        **{("service", name): evidence for name, evidence in context.services.items()},
        **{("device", key): evidence for key, evidence in context.devices.items()},
        **{("host", key): evidence for key, evidence in gathered.hosts.items()},
    }


def measured_over(
    window_s: int,
    store: Store,
    gathered: Present,
    progress: Progress,
    *,
    dated: bool,
    elsewhere: Waiting = NOTHING_ELSEWHERE,
) -> MeasuredWindow:
    """Read the evidence of the same subjects in another window that ends at the same time.

    Most parts are read only when a rule reads them: four weeks of histograms dominate the time. `elsewhere` are parts
    that a fork reads. Raises StoreError if the database cannot be read.
    """
    span, context = format_duration(window_s), gathered.context

    def of_span(phase: str, share: float) -> None:
        progress(f"reading the last {span}: {phase.removeprefix('reading ')}", share)

    with store.read() as connection:
        window = Window(connection, context.now_ts - window_s, context.now_ts, dated=dated)
        seen = window.evidence(
            context.market, of_span, store.read, first=first_parts(window_s, gathered.window_s), elsewhere=elsewhere
        )
    replicas = {
        service.name: [replica.deployment_id for replica in service.deployments] for service in gathered.fleet.services
    }
    subjects: dict[SubjectKey, Callable[[], Evidence]] = {
        **{("deployment", key): partial(seen.of_deployments, (key,)) for key in context.deployments},
        **{("service", name): partial(seen.of_deployments, ids) for name, ids in replicas.items()},
        **{("device", key): partial(seen.of_devices, (key,)) for key in context.devices},
        **{("host", host.host_id): partial(seen.of_devices, host.device_ids) for host in gathered.fleet.hosts},
    }
    return MeasuredWindow(_LazyMeasured(subjects), seen.parts)


class _LazyMeasured(Mapping[SubjectKey, Evidence]):
    """Evidence by subject, made when somebody looks at it: few rules have a window of their own."""

    def __init__(self, subjects: Mapping[SubjectKey, Callable[[], Evidence]]) -> None:
        self._subjects = subjects
        self._made: dict[SubjectKey, Evidence] = {}

    def __getitem__(self, key: SubjectKey) -> Evidence:
        if key not in self._made:
            self._made[key] = self._subjects[key]()
        return self._made[key]

    def get(self, key: SubjectKey, default: Any = None) -> Any:
        """Return the evidence of a subject, or the default for one that is not known."""
        return self[key] if key in self._subjects else default

    def __contains__(self, key: object) -> bool:
        return key in self._subjects

    def __iter__(self) -> Iterator[SubjectKey]:
        return iter(self._subjects)

    def __len__(self) -> int:
        return len(self._subjects)
