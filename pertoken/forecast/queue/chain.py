"""The chain of requests at one replica: how many run at an arrival rate, and how fast they finish."""

from dataclasses import dataclass

import numpy as np

from pertoken.forecast.queue.load import Array, Lengths

STATES = 48
"""Numbers of requests the chain is evaluated at: all of them where a batch is small."""
SPREAD = 6.0
"""Standard deviations of the number of requests that are covered."""


@dataclass(frozen=True, slots=True)
class Service:
    """Step and prefill times of deployments, one row each. Seconds; requests and rates are of one replica."""

    running: Array
    """Shape (n, points), rising along a row: sequences at which `decode_s` is known."""
    decode_s: Array
    """Shape (n, points): one decode step at each batch size, without any prefill."""
    prefill_s: Array
    """Shape (n, lengths): device time of each of the prompt's equally likely lengths."""
    prefill_steps: Array
    """Shape (n, lengths): engine steps each prompt is spread over (chunked prefill); 1 if computed at once."""
    limit: Array
    """Shape (n,): most sequences that run at once, at least 1."""

    def step_s(self, running: Array) -> Array:
        """Decode step at `running` sequences, shape (n, any): straight lines between the known points."""
        points = self.running.shape[1]
        below = (self.running[:, None, :] <= running[:, :, None]).sum(axis=2) - 1
        below = np.minimum(np.maximum(below, 0), points - 2)
        place = below + (np.arange(len(below)) * points)[:, None]
        left, right = self.running.take(place), self.running.take(place + 1)
        low, high = self.decode_s.take(place), self.decode_s.take(place + 1)
        share = np.minimum(np.maximum((running - left) / np.maximum(right - left, 1e-12), 0.0), 1.0)
        seconds: Array = low + share * (high - low)
        return seconds


@dataclass(frozen=True, slots=True)
class States:
    """Stationary distribution of a chain, one row per load."""

    requests: Array
    """Shape (n, STATES): requests that run in each state."""
    weight: Array
    """Shape (n, STATES): probability of each state."""
    full: Array
    """Shape (n,): probability that an arrival finds no place in the batch."""
    running: Array
    """Shape (n,): mean."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Requests that run and finish at replicas, one row each."""

    service: Service
    generated: Lengths
    limit: Array

    prefill: Array
    """Shape (n, 1): mean seconds of a prefill."""
    steps: Array
    """Shape (1, 1) or (n, 1): decode steps of a mean answer, its first token comes out of the prefill."""

    @classmethod
    def of(cls, service: Service, generated: Lengths, limit: Array) -> "Chain":
        """Make the chain of a service; `limit`, shape (n,): most sequences that run at once."""
        steps = np.maximum(generated.rows.mean(axis=1) - 1, 1e-9)
        return cls(service, generated, limit, service.prefill_s.mean(axis=1)[:, None], steps[:, None])

    def finished_per_s(self, running: Array) -> Array:
        """Return the requests/s that finish at a batch size, shape (n, any); below one, as a share of one."""
        busy: Array = self.prefill * running + self.steps * self.service.step_s(np.maximum(running, 1.0))
        return running / busy

    def running_at(self, rate: Array) -> Array:
        """Return how many run where as many finish as arrive, at rates below that of a full batch, shape (n,).

        A step is straight between the known points, so that the number follows from the line it lies on.
        """
        points, step_s = self.service.running, self.service.decode_s
        row, last = np.arange(len(rate)), points.shape[1] - 1
        enough = self.finished_per_s(points) >= rate[:, None]
        above = np.where(enough.any(axis=1), enough.argmax(axis=1), last + 1)
        left, right = np.maximum(above - 1, 0), np.minimum(above, last)
        apart = points[row, right] - points[row, left]
        slope = np.where(apart > 0, (step_s[row, right] - step_s[row, left]) / np.where(apart > 0, apart, 1.0), 0.0)
        alone = step_s[row, left] - slope * points[row, left]
        answers = rate * self.steps[:, 0]
        running: Array = answers * alone / np.maximum(1 - rate * self.prefill[:, 0] - answers * slope, 1e-300)
        return np.minimum(np.maximum(running, 0.0), self.limit)

    def held_cv2(self) -> Array:
        """Squared coefficient of variation of the time a request holds its place in a full batch."""
        step = self.service.step_s(self.limit[:, None])[:, 0]
        prefill = self.service.prefill_s
        spread: Array = prefill.var(axis=1) + step**2 * self.generated.rows.var(axis=1)
        held: Array = prefill.mean(axis=1) + step * self.steps[:, 0]
        return spread / held**2

    def states(self, rate: Array, capacity: Array) -> States:
        """Return the chain at arrival rates below the capacity, on a grid around its most likely number."""
        likely = self.running_at(rate)
        near = np.stack([0.95 * likely, likely], axis=1)
        rates = self.finished_per_s(near)
        slope = np.maximum((rates[:, 1] - rates[:, 0]) / np.maximum(near[:, 1] - near[:, 0], 1e-12), 1e-12)
        spread = SPREAD * np.sqrt(rate / slope) + SPREAD
        first = np.floor(np.maximum(likely - spread, 0.0))
        last = np.minimum(np.ceil(likely + spread), np.floor(self.limit))
        first = np.minimum(first, last)
        step = np.maximum(1.0, (last - first) / (STATES - 1))
        busy_s: Array = first[:, None] + step[:, None] * np.arange(STATES, dtype=float)
        inside = busy_s <= last[:, None] + 1e-9
        busy_s = np.minimum(busy_s, last[:, None])
        arriving = np.log(rate)[:, None]
        gain = arriving - np.log(self.finished_per_s(np.maximum(busy_s[:, 1:], 1.0)))
        first_gain = arriving - np.log(self.finished_per_s(np.maximum(busy_s[:, :-1] + 1, 1.0)))
        log = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(step[:, None] * (gain + first_gain) / 2, axis=1)], 1)
        log = np.where(inside, log, -np.inf)
        weight = np.exp(log - log.max(axis=1, keepdims=True)) * step[:, None]
        busiest = np.take_along_axis(weight, (inside.sum(axis=1) - 1)[:, None], axis=1)[:, 0]
        at_limit = last >= np.floor(self.limit)
        beyond = np.where(at_limit, busiest / step * rate / (capacity - rate), 0.0)
        total = weight.sum(axis=1) + beyond
        full = np.where(at_limit, (busiest / step + beyond) / total, 0.0)
        running = ((weight * busy_s).sum(axis=1) + beyond * self.limit) / total
        weight[np.arange(len(rate)), inside.sum(axis=1) - 1] += beyond
        return States(busy_s, weight / total[:, None], np.minimum(full, 1.0), running)
