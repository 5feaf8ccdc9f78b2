"""Every metric that is counted or measured where it happens. docs/metrics.md lists them with those of `present`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

# A series more for each, with when it was made: nobody asks for that.
disable_created_metrics()  # type: ignore[no-untyped-call]

#: Seconds. A decision takes some microseconds, one about thousands of offers a few seconds.
_DECISIONS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
#: A transaction is durable when it returns: a disk, or a quorum of ZooKeepers.
_STORE = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
#: From the loss to the next launch: a back-off, and offers to wait for.
_RECOVERY = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


class Families:
    """Counters and histograms in a registry. They begin at 0 with each start of the scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"tensorflow_{name}", words, labels, registry=registry)

        def histogram(name: str, words: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"tensorflow_{name}", words, labels, buckets=buckets, registry=registry)

        self.offers = counter("offers", "Offers, by what became of them; received counts all.", "outcome")
        self.operations = counter("operations", "What was asked for in accepted offers.", "operation")
        self.revives = counter("revives", "Calls for offers.")
        self.throttled = counter("revives_throttled", "Calls for offers that had to wait for a token.")
        self.suppresses = counter("suppresses", "Calls for no more offers.")
        self.launches = counter("launches", "Launches of tasks.", "job_name")
        self.statuses = counter("task_statuses", "Status updates from Mesos.", "state")
        self.failures = counter("failures", "Launches that failed, by cause; see docs/recovery.md.", "cause")
        self.recoveries = counter("recoveries", "Launches in place of earlier ones, by why those ended.", "cause")
        words = "Seconds from the decision to launch a task again to its launch."
        self.recovery_seconds = histogram("recovery_seconds", words, _RECOVERY)
        self.subscriptions = counter("subscriptions", "How often Mesos took us in.")
        self.disconnections = counter("disconnections", "How often the connection to Mesos was lost.")
        words = "Questions to Mesos about tasks: explicit about some, implicit about all."
        self.reconciliations = counter("reconciliations", words, "kind")
        words = "Seconds of the loop for the decision on one event, without storing it."
        self.decisions = histogram("decision_seconds", words, _DECISIONS, "event")
        self.store = histogram("store_seconds", "Seconds of one transaction of the loop.", _STORE)
        self.store_failures = counter("store_failures", "Transactions of the loop that failed.")
        self.requests = counter("api_requests", "Requests to the HTTP API that were answered.", "method", "code")
