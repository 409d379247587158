"""`pertoken size`: deployments that could serve a model, ranked by cost."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import echo, echo_json, json_option, seconds_of, terminal_width
from pertoken.errors import BadInput

if TYPE_CHECKING:
    from pertoken.catalog.market import Market
    from pertoken.state.deployment import Model

NOTHING_HOLDS = 3
"""Exit status if no deployment on devices holds the SLO."""


@click.command(short_help="Rank deployments that would serve a model within an SLO.")
@click.argument("model")
@click.option(
    "--requests-per-s", type=click.FloatRange(min=0, min_open=True), required=True, help="Requests per second."
)
@click.option("--prompt", type=click.FloatRange(min=1), required=True, help="Mean prompt tokens of a request.")
@click.option("--output", type=click.FloatRange(min=1), required=True, help="Mean generated tokens of a request.")
@click.option("--ttft-p95", metavar="DURATION", required=True, help="Objective for p95 time to first token: 800ms.")
@click.option("--tpot-p95", metavar="DURATION", help="Objective for p95 time per output token: 50ms.")
@click.option(
    "--cached",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Share of prompt tokens served from the prefix cache [0 to 1].",
)
@click.option(
    "--images", type=click.FloatRange(min=0), default=0.0, help="Mean images of a request, beside its prompt tokens."
)
@click.option(
    "--image-size",
    metavar="WxH",
    default="1024x1024",
    show_default=True,
    help="Width and height of an image in pixels.",
)
@click.option(
    "--param",
    "params",
    metavar="NAME=NUMBER",
    multiple=True,
    help="A number of the model's shape that its files do not give: params_active=3e9.",
)
@click.option("--providers", metavar="NAME,...", help="Only these providers [default: all in the catalog].")
@click.option("--formats", metavar="NAME,...", help="Only these weight formats [default: those of each accelerator].")
@click.option(
    "--purchase",
    type=click.Choice(["on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block"]),
    default="on_demand",
    show_default=True,
    help="Which list prices of instances.",
)
@click.option("--rows", type=click.IntRange(1), default=12, show_default=True, help="Lines of the table.")
@json_option
def size(
    model: str,
    requests_per_s: float,
    prompt: float,
    output: float,
    ttft_p95: str,
    tpot_p95: str | None,
    cached: float,
    images: float,
    image_size: str,
    params: tuple[str, ...],
    providers: str | None,
    formats: str | None,
    purchase: str,
    rows: int,
    as_json: bool,
) -> None:
    """Rank accelerators, layouts and weight formats that serve MODEL within an SLO by dollars per Mtok.

    MODEL is a name in the catalog (meta-llama/Llama-3.1-8B), or a folder with the config.json of another one; where its
    parameters cannot be counted from that alone, its safetensors files beside it give them, or --param. Nothing has to
    run or be recorded: the forecast is the one of `pertoken advise` without the telemetry of a host, prices are list
    prices, and serverless APIs stand in the same table. Dollars are for this load all day, on whole instances.

    Exits with 3 and names the nearest miss where nothing on devices holds the SLO.
    """
    from pertoken.catalog.market import load_market
    from pertoken.savings.size import SizedWorkload, plain, size
    from pertoken.state.service import Slo
    from pertoken.text.sizing import sizing_text

    market = load_market()
    slo = Slo(
        ttft_p95_ms=_milliseconds("--ttft-p95", ttft_p95),
        tpot_p95_ms=None if tpot_p95 is None else _milliseconds("--tpot-p95", tpot_p95),
    )
    shape, dtype = _model(model, market, dict(map(_param, params)))
    workload = SizedWorkload(requests_per_s, prompt, output, slo, cached)
    pixels = _pixels(image_size)
    ranking = size(
        shape,
        workload.with_images(images, pixels, shape.name) if images else workload,
        market,
        providers=None if providers is None else _providers(providers, market),
        purchase=purchase,
        dtypes=_formats(formats) if formats is not None else None if dtype is None else (dtype,),
    )
    today = datetime.now(UTC).date()
    if as_json:
        echo_json(plain(ranking, today, market.stale_after_days))
    else:
        echo(sizing_text(ranking, today, market.stale_after_days, terminal_width(), rows), nl=False)
    if not ranking.rented:
        sys.exit(NOTHING_HOLDS)


def _milliseconds(option: str, text: str) -> float:
    seconds = seconds_of(option, text)
    if seconds <= 0:
        raise BadInput(f"{option} {text}: must be above 0")
    return 1000 * seconds


def _pixels(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise BadInput(f"--image-size {text}: not a width and a height in pixels, such as 1024x768")
    return int(width), int(height)


def _param(text: str) -> tuple[str, int]:
    """Return (field of `Model`, number) of NAME=NUMBER. Raises BadInput."""
    from pertoken.state.deployment import Model

    name, _, number = text.partition("=")
    names = [field.name for field in fields(Model) if field.name != "name"]
    if name not in names:
        raise BadInput(f"--param {text}: {name!r} is no number of a shape; known are {', '.join(names)}")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 < value < 2**60 or value != int(value):
        raise BadInput(f"--param {text}: not a whole number above 0, such as {name}=8000000000 or {name}=8e9")
    return name, int(value)


def _model(name: str, market: Market, params: dict[str, int]) -> tuple[Model, str | None]:
    """Return the shape of a model, and the format its weights are stored in if they are quantized. Raises BadInput."""
    from pertoken.savings.size import known_model

    folder = Path(name)
    if (folder / "config.json").is_file():
        return _described(folder, params)
    return replace(known_model(name, market), **params), None  # type: ignore[arg-type]


def _described(folder: Path, params: dict[str, int]) -> tuple[Model, str | None]:
    from pertoken.agent.checkpoints.checkpoint import read_files
    from pertoken.state.deployment import Model

    checkpoint = read_files(folder)
    if checkpoint.reason is not None:
        raise BadInput(f"{checkpoint.reason}: not a description of a model")
    model = Model(folder.resolve().name, **{**checkpoint.facts, **params})  # type: ignore[arg-type]
    if not model.known:
        needed = ("params_total", "params_active", "n_layers", "n_kv_heads")
        missing = [name for name in needed if getattr(model, name) is None]
        missing += ["kv_values"] if model.kv_values_per_token is None else []
        reasons = "; ".join(checkpoint.unknown) or "its files do not give the whole shape"
        raise BadInput(
            f"{folder}: {reasons}. Give {', '.join(missing)} by --param NAME=NUMBER; parameters are also counted from "
            "the model's safetensors files beside its config.json"
        )
    return model, checkpoint.dtype if checkpoint.quantized else None


def _providers(text: str, market: Market) -> tuple[str, ...]:
    from pertoken.catalog.offers import listed_token_offers

    providers = {offer.provider for offer in market.all_offers} | {offer.provider for offer in listed_token_offers()}
    return _known("--providers", text.lower(), providers, "a provider of the catalog")


def _formats(text: str) -> tuple[str, ...]:
    from pertoken.savings.size import FORMATS

    return _known("--formats", text.lower(), set(FORMATS), "a weight format")


def _known(option: str, text: str, valid_names: set[str], what: str) -> tuple[str, ...]:
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    for name in names:
        if name not in valid_names:
            raise BadInput(f"{option}: {name!r} is not {what}; known are {', '.join(sorted(valid_names))}")
    if not names:
        raise BadInput(f"{option}: the list is empty")
    return names
