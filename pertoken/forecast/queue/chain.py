"""Birth-death chain of the requests at one replica: the number that runs at an arrival rate, and the rate at which
they finish."""

from dataclasses import dataclass

import numpy as np

from pertoken.arrivals import Array, Lengths

STATES = 48
"""States that the chain is evaluated at. A small batch has fewer, and all of them are used."""
SPREAD = 6.0
"""Standard deviations of the number of requests that the states cover on either side."""


@dataclass(frozen=True, slots=True)
class Service:
    """Step and prefill times of deployments, one row each. Seconds; requests and rates are of one replica."""

    running: Array
    """Shape (n, points), rising along a row: batch sizes at which `decode_s` is known."""
    decode_s: Array
    """Shape (n, points): seconds of one decode step at each batch size, without any prefill."""
    prefill_s: Array
    """Shape (n, lengths): device seconds of the prefill of each of the equally likely prompt lengths."""
    prefill_steps: Array
    """Shape (n, lengths): engine steps of the prefill of each length: 1, or more with chunked prefill."""
    limit: Array
    """Shape (n,): maximum number of sequences that run at once, at least 1."""

    def step_s(self, running: Array) -> Array:
        """Return the seconds of a decode step at `running` sequences, shape (n, any); linear between known points."""
        points = self.running.shape[1]
        # Points first: adding up whole arrays takes a third of the time of adding up a few values of each.
        below = (self.running.T[:, :, None] <= running).sum(axis=0, dtype=np.int16) - 1
        below = np.minimum(np.maximum(below, 0), points - 2)
        index = below + (np.arange(len(below)) * points)[:, None]
        left, right = self.running.take(index), self.running.take(index + 1)
        low, high = self.decode_s.take(index), self.decode_s.take(index + 1)
        share = np.minimum(np.maximum((running - left) / np.maximum(right - left, 1e-12), 0.0), 1.0)
        seconds: Array = low + share * (high - low)
        return seconds


@dataclass(frozen=True, slots=True)
class States:
    """Stationary distribution of a chain, one row per load."""

    requests: Array
    """Shape (n, STATES): number of running requests in each state."""
    weight: Array
    """Shape (n, STATES): probability of each state."""
    full: Array
    """Shape (n,): probability that the batch is full when a request arrives."""
    running: Array
    """Shape (n,): mean number of running requests."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Requests that run and finish at replicas, one row each."""

    service: Service
    generated: Lengths
    """Output lengths."""
    limit: Array
    """Shape (n,): maximum number of sequences that run at once."""
    prefill_s: Array
    """Shape (n, 1): mean seconds of a prefill."""
    steps: Array
    """Shape (1, 1) or (n, 1): decode steps of a mean output. The prefill gives its first token."""

    @classmethod
    def of(cls, service: Service, generated: Lengths, limit: Array) -> "Chain":
        """Return the chain of a service; `limit`, shape (n,): maximum number of sequences that run at once."""
        steps = np.maximum(generated.rows.mean(axis=1) - 1, 1e-9)
        return cls(service, generated, limit, service.prefill_s.mean(axis=1)[:, None], steps[:, None])

    def finished_per_s(self, running: Array) -> Array:
        """Return the requests/s that finish at `running` sequences, shape (n, any); below 1 it is proportional."""
        seconds: Array = self.prefill_s * running + self.steps * self.service.step_s(np.maximum(running, 1.0))
        return running / seconds

    def running_at(self, rate: Array) -> Array:
        """Return the number of sequences at which requests finish as fast as they arrive, shape (n,).

        `rate` is below that of a full batch. The step time is linear between the known points, so the number is the
        solution of a linear equation on the segment that contains it.
        """
        points, step_s = self.service.running, self.service.decode_s
        row, last = np.arange(len(rate)), points.shape[1] - 1
        enough = self.finished_per_s(points) >= rate[:, None]
        above = np.where(enough.any(axis=1), enough.argmax(axis=1), last + 1)
        left, right = np.maximum(above - 1, 0), np.minimum(above, last)
        width = points[row, right] - points[row, left]
        slope = np.where(width > 0, (step_s[row, right] - step_s[row, left]) / np.where(width > 0, width, 1.0), 0.0)
        intercept = step_s[row, left] - slope * points[row, left]
        steps_per_s = rate * self.steps[:, 0]
        running: Array = (
            steps_per_s * intercept / np.maximum(1 - rate * self.prefill_s[:, 0] - steps_per_s * slope, 1e-300)
        )
        return np.minimum(np.maximum(running, 0.0), self.limit)

    def residence_cv2(self) -> Array:
        """Return the squared coefficient of variation of the time of a request in a full batch, shape (n,)."""
        step = self.service.step_s(self.limit[:, None])[:, 0]
        prefill = self.service.prefill_s
        variance: Array = prefill.var(axis=1) + step**2 * self.generated.rows.var(axis=1)
        mean: Array = prefill.mean(axis=1) + step * self.steps[:, 0]
        return variance / mean**2

    def states(self, rate: Array, capacity: Array) -> States:
        """Return the stationary distribution at arrival rates below the capacity, on a grid around its mode."""
        likely = self.running_at(rate)
        near = np.stack([0.95 * likely, likely], axis=1)
        rates = self.finished_per_s(near)
        slope = np.maximum((rates[:, 1] - rates[:, 0]) / np.maximum(near[:, 1] - near[:, 0], 1e-12), 1e-12)
        spread = SPREAD * np.sqrt(rate / slope) + SPREAD
        first = np.floor(np.maximum(likely - spread, 0.0))
        last = np.minimum(np.ceil(likely + spread), np.floor(self.limit))
        first = np.minimum(first, last)
        step = np.maximum(1.0, (last - first) / (STATES - 1))
        requests: Array = first[:, None] + step[:, None] * np.arange(STATES, dtype=float)
        inside = requests <= last[:, None] + 1e-9
        requests = np.minimum(requests, last[:, None])
        arriving = np.log(rate)[:, None]
        gain = arriving - np.log(self.finished_per_s(np.maximum(requests[:, 1:], 1.0)))
        first_gain = arriving - np.log(self.finished_per_s(np.maximum(requests[:, :-1] + 1, 1.0)))
        log = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(step[:, None] * (gain + first_gain) / 2, axis=1)], 1)
        log = np.where(inside, log, -np.inf)
        weight = np.exp(log - log.max(axis=1, keepdims=True)) * step[:, None]
        busiest = np.take_along_axis(weight, (inside.sum(axis=1) - 1)[:, None], axis=1)[:, 0]
        at_limit = last >= np.floor(self.limit)
        beyond = np.where(at_limit, busiest / step * rate / (capacity - rate), 0.0)
        total = weight.sum(axis=1) + beyond
        full = np.where(at_limit, (busiest / step + beyond) / total, 0.0)
        running = ((weight * requests).sum(axis=1) + beyond * self.limit) / total
        weight[np.arange(len(rate)), inside.sum(axis=1) - 1] += beyond
        return States(requests, weight / total[:, None], np.minimum(full, 1.0), running)
