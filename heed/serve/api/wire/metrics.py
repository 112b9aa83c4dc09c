"""What /metrics tells, in the format of Prometheus: requests, tokens, seconds, and what the engines hold."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """Of one server; labels are routes, statuses and models, all of them few, never what a client sends."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self.requests = Counter("heed_requests", "Requests that were answered.", ("route", "status"), registry=registry)
        self.open = Gauge("heed_requests_open", "Requests that are being answered.", registry=registry)
        self.read = Counter(
            "heed_prompt_tokens", "Tokens of prompts that were answered.", ("model",), registry=registry
        )
        self.cached = Counter(
            "heed_prompt_tokens_cached", "Tokens of prompts that had been read before.", ("model",), registry=registry
        )
        self.written = Counter("heed_written_tokens", "Tokens of answers.", ("model",), registry=registry)
        self.first = self._seconds("heed_first_token_seconds", "From a request to the first token of its answer.")
        self.between = self._seconds("heed_token_gap_seconds", "Between the tokens of an answer, on average.")
        self.whole = self._seconds("heed_answer_seconds", "From a request to the end of its answer.")

    def _seconds(self, name: str, what: str) -> Histogram:
        return Histogram(name, what, ("model",), buckets=SECONDS, registry=self.registry)

    def gauge(self, name: str, what: str, model: str, value: float) -> None:
        """What an engine holds now."""
        if name not in self._gauges:
            self._gauges[name] = Gauge(f"heed_{name}", what, ("model",), registry=self.registry)
        self._gauges[name].labels(model).set(value)

    def text(self) -> bytes:
        """The whole page."""
        return generate_latest(self.registry)
