"""Builders for the tests of this package."""

from pertoken.arrivals import Arrivals
from pertoken.catalog.market import Accelerator, load_market
from pertoken.forecast.candidates import Candidates
from pertoken.forecast.efficiency import efficiency, first_token_scaled, time_scale
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import Latency, LatencyQuery, SloMs, fewest_all, latencies
from pertoken.forecast.served import Abstained, Load
from pertoken.forecast.serving import BeforeAfter, Forecast, compare, forecast
from pertoken.state.deployment import Deployment, Model, Placement

SHORT = Load(generated_tok_s=1, prompt_len=50, generated_len=100, running=1)
MARKET = load_market()


def model(name: str) -> Model:
    model = MARKET.model(name)
    assert model is not None
    return model


def accelerator(name: str) -> Accelerator:
    accelerator = MARKET.accelerator(name)
    assert accelerator is not None
    return accelerator


H100 = Placement(accelerator="H100 SXM5")
LLAMA_8B = Deployment(model("Llama-3.1-8B"), "vllm", placement=H100, tp=1, weight_dtype="bf16")
LLAMA_70B = Deployment(model("Llama-3.3-70B"), "vllm", placement=H100, tp=2, weight_dtype="bf16")
MOE = Deployment(model("Qwen3-30B-A3B"), "vllm", placement=H100, tp=1, weight_dtype="bf16")
CHAT = Load(generated_tok_s=40, prompt_len=1000, generated_len=250, running=2)


def ratio(now: Deployment, to: Deployment, load: Load = CHAT) -> tuple[float, float, float]:
    change = compare(now, to, load, MARKET)
    assert isinstance(change, BeforeAfter)
    return change.ratio


def at(deployment: Deployment, load: Load) -> Forecast:
    predicted = forecast(deployment, load, MARKET)
    assert predicted.refusal is None and predicted.running is not None and predicted.saturated is not None
    return predicted


def first_token_s(c: Candidates) -> float:
    return float(first_token_scaled(c, time_scale(c, efficiency()))[0])


def latency(of: Deployment, load: Load, arrivals: Arrivals, calibration: Calibration | None = None) -> Latency:
    (result,) = latencies([LatencyQuery(of, load, arrivals, calibration or Calibration())], MARKET)
    if isinstance(result, Abstained):
        raise result
    return result


def fewest_replicas(of: Deployment, load: Load, arrivals: Arrivals, slo_ms: SloMs = (None, None)) -> int | None:
    (counts,) = fewest_all([(LatencyQuery(of, load, arrivals, Calibration()), (1.0,), slo_ms)], MARKET)
    assert not isinstance(counts, Abstained)
    return counts[0]
