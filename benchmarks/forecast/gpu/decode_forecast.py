"""The forecast against a real device: `python -m benchmarks.gpu_forecast`.

Decodes with a model of random weights and the shape of an 8B on the first NVIDIA GPU, at batches of 1 to 256, in BF16
and with 8-bit weights, and measures each. Then the forecast is calibrated with one of these points (BF16 at one batch)
and predicts all the others. Needs PyTorch; one JSON object goes to stdout.

`--device cpu --tiny` runs the same on a CPU with a small shape, to see that it runs: what it then predicts is for the
accelerator that `--accelerator` names, and does not know either.
"""

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.calibrate import calibrate
from benchmarks.forecast.gpu.shape import Shape
from benchmarks.report import Row, Target, report
from pertoken.catalog.market import load_market
from pertoken.forecast.host import Calibration
from pertoken.forecast.served import Abstained, Load
from pertoken.forecast.serving import forecast
from pertoken.state.deployment import Deployment, Placement

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXT = 512
"""Tokens of each sequence's cache."""
STEPS, WARM_UP = 40, 5
CALIBRATED_AT = 8
METHOD = "decode loop in PyTorch, random weights; median of steps"


LLAMA_8B = Shape(32, 4096, 32, 8, 128, 14336, 128_256)
TINY = Shape(2, 64, 4, 2, 16, 128, 256)


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds of one decode step, the median of several."""

    weights: str
    batch: int
    step_s: float

    @property
    def tok_s(self) -> float:
        """Generated tokens/s."""
        return self.batch / self.step_s


def measure(
    shape: Shape, device: str, weights: str, batches: Sequence[int], context: int, steps: int
) -> Iterator[Point]:
    """Decode at each batch. Batches that do not fit the device's memory are left out, with a line on stderr."""
    import torch

    from benchmarks.forecast.gpu.decode_loop import Decoder

    torch.manual_seed(0)
    decoder = Decoder(shape, device, weights)
    for batch in batches:
        try:
            times = decoder.step_times(batch, context, steps, WARM_UP)
        except torch.OutOfMemoryError:
            print(f"{weights}, batch {batch}: out of memory", file=sys.stderr)
            return
        yield Point(weights, batch, statistics.median(times))


def predict(
    points: Sequence[Point], shape: Shape, accelerator: str, context: int
) -> tuple[Calibration | None, dict[Point, tuple[float, float, float] | str]]:
    """Tokens/s (low, likely, high) of every point but the one that calibrates, or why there is none."""
    market = load_market()
    name = "random weights"
    now = Deployment(
        shape.model(name),
        "vllm",
        placement=Placement(accelerator=accelerator),
        tp=1,
        weight_dtype="bf16",
        max_num_seqs=1024,
    )
    # Nothing is prefilled: answers are as long as the cache is deep twice over, so that it is `context` on average.
    load = Load(0.0, prompt_len=1.0, generated_len=2.0 * (context - 1), running=1.0, cached_share=1.0)
    base = next(
        point for point in points if point.weights == "bf16" and point.batch >= min(CALIBRATED_AT, points[-1].batch)
    )
    try:
        known = calibrate(now, replace(load, running=base.batch), market, base.tok_s, 1000 * base.step_s)
    except Abstained as error:
        return None, {point: str(error) for point in points}
    predicted: dict[Point, tuple[float, float, float] | str] = {}
    for point in points:
        if point == base:
            continue
        predicted_change = forecast(
            now.but(weight_dtype=point.weights), replace(load, running=point.batch), market, known
        )
        predicted[point] = (
            predicted_change.running.tok_s
            if predicted_change.running
            else predicted_change.refusal or "would not start"
        )
    return known, predicted


def why_not(device: str) -> str | None:
    """Return why there is nothing to measure here; None if there is."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed here: it does the work that is measured"
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        return "no NVIDIA GPU can be used here; --device cpu --tiny only shows that the benchmark runs"
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, predict, and print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_forecast",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a shape of 2 layers, batches up to 4")
    parser.add_argument("--accelerator", help="catalog name to predict for (default: the GPU's own)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"timed steps at each batch (default {STEPS})")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(arguments)
    missing = why_not(chosen.device)
    if missing is not None:
        parser.exit(2, f"{missing}\n")
    shape, batches, context = (TINY, (1, 2, 4), 32) if chosen.tiny else (LLAMA_8B, BATCHES, CONTEXT)
    import torch

    from benchmarks.forecast.gpu.decode_loop import narrow_weights

    accelerator = chosen.accelerator
    if accelerator is None and chosen.device == "cuda":
        reported = load_market().accelerator(torch.cuda.get_device_name(0))
        accelerator = reported.name if reported else torch.cuda.get_device_name(0)
    points: list[Point] = []
    for weights in ("bf16", narrow_weights(chosen.device)):
        for point in measure(shape, chosen.device, weights, batches, context, chosen.steps):
            print(f"{weights}, batch {point.batch}: {point.tok_s:.1f} tok/s", file=sys.stderr)
            points.append(point)
    known, predicted = predict(points, shape, accelerator or "a CPU", context)
    rows, errors = [Row("device", "name", accelerator, "", "as the driver reports it")], []
    for point in points:
        what = f"{point.weights}, batch {point.batch}"
        rows.append(Row("measured", what, round(point.tok_s, 2), "tok/s", METHOD))
        prediction = predicted.get(point)
        if isinstance(prediction, tuple):
            errors.append(abs(prediction[1] / point.tok_s - 1))
            rows.append(
                Row(
                    "forecast",
                    what,
                    round(prediction[1], 2),
                    "tok/s",
                    f"80 %: {prediction[0]:.2f} to {prediction[2]:.2f}",
                )
            )
        elif prediction is not None:
            rows.append(Row("forecast", what, None, "tok/s", prediction))
    value = statistics.median(errors) if errors else None
    rows.append(Row("forecast", "calibrated", int(known is not None), "", f"BF16, batch {CALIBRATED_AT}"))
    text = report("gpu_forecast", rows, [Target("gpu_forecast.median_error", value, 0.10, "<=")])
    print(text)
    if chosen.json:
        chosen.json.write_text(f"{text}\n", encoding="utf-8")
