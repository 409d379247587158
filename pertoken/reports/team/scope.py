"""Narrowing of figures to the services of some owners. What cannot be assigned to them is left out."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pertoken.config import Settings
from pertoken.costs.fleet import service_name
from pertoken.costs.spend import OTHER, UNALLOCATED, Spend, SpendLine
from pertoken.proof.judging.receipts import StoredReceipt
from pertoken.proof.recommendation import Recommendation
from pertoken.reports.figures import ReportFigures
from pertoken.text.advice_table import Folded

NO_OWNER = "no owner"


@dataclass(frozen=True, slots=True)
class Scope:
    """The services that a reader reads, by their owners in the settings."""

    settings: Settings
    owners: tuple[str, ...] | None
    """None: everything."""

    def has_service(self, name: str) -> bool:
        """Return whether a service is read."""
        owner = next((service.owner for service in self.settings.services if service.name == name), None)
        return self.owners is None or (owner is not None and owner in self.owners)

    def has_model(self, served_model: str) -> bool:
        """Return whether the service of a served model is read."""
        return self.has_service(service_name(served_model, self.settings))

    def has_deployment(self, deployment_id: int | None, report: ReportFigures) -> bool:
        """Return whether a deployment's service is read; False for one that was not seen in the period."""
        if self.owners is None:
            return True
        epoch = report.inventory.newest.get(deployment_id) if deployment_id is not None else None
        return epoch is not None and self.has_model(epoch.served_model)

    def has_advice(self, row: Recommendation, report: ReportFigures) -> bool:
        """Return whether every service and host that advice is about or touches is read; hosts by what they serve."""
        touched = {subject for variant in row.variants for subject in variant.touches}
        subjects = {f"{row.target_kind}:{row.target_key}", *touched, *row.targets}
        return self.owners is None or all(self._has_subject(subject, report) for subject in subjects)

    def _has_subject(self, subject: str, report: ReportFigures) -> bool:
        kind, _, key = subject.partition(":")
        if kind == "service":
            return self.has_service(key)
        if kind == "deployment":
            return self.has_deployment(int(key), report)
        if kind == "host":
            models = [epoch.served_model for epoch in report.inventory.epochs if str(epoch.host_id) == key]
            return bool(models) and all(map(self.has_model, models))
        return False

    def has_receipt(self, receipt: StoredReceipt, report: ReportFigures) -> bool:
        """Return whether the deployment that a receipt is about is read."""
        return self.has_deployment(receipt.deployment_id, report)


def narrowed(report: ReportFigures, scope: Scope) -> ReportFigures:
    """Return the figures of a scope. Tenants, teams and the bill have no owner: they are left out."""
    if scope.owners is None:
        return report
    savings, folds = report.savings, report.savings.folds

    def read(rows: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
        return tuple(row for row in rows if scope.has_advice(row, report))

    by_rule = tuple(rows for group in folds.by_rule if (rows := read(group)))
    return replace(
        report,
        bill=None,
        hours=tuple(hours for hours in report.hours if scope.has_model(hours.model)),
        models=_spend(report.models, [line for line in report.models.lines if scope.has_model(line.name)]),
        tenants=_spend(report.tenants, []),
        teams=_spend(report.teams, []),
        figures=tuple(figure for figure in report.figures if scope.has_model(figure.model)),
        troubles=tuple(line for line in report.troubles if scope.has_deployment(line.deployment_id, report)),
        verdicts=tuple(verdict for verdict in report.verdicts if scope.has_deployment(verdict.deployment_id, report)),
        savings=replace(
            savings,
            proposed=read(savings.proposed),
            unconfirmed=read(savings.unconfirmed),
            paying_more=read(savings.paying_more),
            taken=read(savings.taken),
            refused=read(savings.refused),
            folds=Folded(read(folds.shown), by_rule, read(folds.slow), folds.hour_rate),
        ),
    )


def by_owner(models: Spend, settings: Settings) -> Spend:
    """Return a bill by model as one by owner of the services; other work and unallocated time stay lines."""
    owner_of_service = {service.name: service.owner for service in settings.services}
    lines: dict[str, list[SpendLine]] = defaultdict(list)
    for line in models.lines:
        owner = owner_of_service.get(service_name(line.name, settings)) or NO_OWNER
        lines[line.name if line.name in (OTHER, UNALLOCATED) else owner].append(line)
    sums = [_sum(name, group) for name, group in lines.items()]
    ordered = sorted(sums, key=lambda line: (line.name in (OTHER, UNALLOCATED), line.name == NO_OWNER, -line.nano_usd))
    return replace(models, by="owner", lines=ordered)


def _spend(spend: Spend, lines: Sequence[SpendLine]) -> Spend:
    """Return a bill of some of its lines, without notes: those may name other services."""
    whole = None if spend.nano_usd is None else sum(line.nano_usd for line in lines)
    return replace(spend, nano_usd=whole, lines=lines, notes=())


def _sum(name: str, lines: Sequence[SpendLine]) -> SpendLine:
    tokens, generated, requests = (
        None if any(count is None for count in counts) else sum(filter(None, counts))
        for counts in (
            [line.tokens for line in lines],
            [line.generated_tokens for line in lines],
            [line.requests for line in lines],
        )
    )
    nano_usd = sum(line.nano_usd for line in lines)
    return SpendLine(name, nano_usd, tokens, generated_tokens=generated, requests=requests)
