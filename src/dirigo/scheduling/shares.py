"""Who has had more than a fair share of a worker's time: a bucket of seconds per job, filled by weight.

A share is counted among the jobs that have had something to do lately, so a job that is alone has all of it.
"""

from __future__ import annotations

BURST_S = 1.0  # a job may be ahead of its share by this much
_LATELY_S = 2.0


class _Bucket:
    __slots__ = ("at", "over_at", "seconds", "weight")

    def __init__(self, weight: float, at: float) -> None:
        self.weight = weight
        self.seconds = BURST_S
        self.at = at  # when it last asked
        self.over_at = float("-inf")  # when it was last told that it has had its share


class Shares:
    """All jobs of one worker."""

    __slots__ = ("_buckets", "_counted_at", "_weights", "over_until")

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self._weights = 0.0  # of the jobs that have had something to do lately
        self._counted_at = float("-inf")
        self.over_until = float("-inf")  # from then on nobody has had too much lately

    def take(self, job: str, weight: float, cost_s: float, now: float) -> bool:
        """Whether a job is within its share with one more message of this cost; if so, the cost is taken off."""
        bucket = self._buckets.get(job)
        if bucket is None:
            bucket = self._buckets[job] = _Bucket(weight, now)
            self._counted_at = float("-inf")
        if now - self._counted_at > _LATELY_S / 4:
            self._counted_at = now
            self._weights = sum(each.weight for each in self._buckets.values() if now - each.at <= _LATELY_S)
        weights = max(weight, self._weights)
        seconds = bucket.seconds + (now - bucket.at) * weight / weights
        bucket.at = now
        if seconds > BURST_S:
            seconds = BURST_S
        elif seconds <= 0.0 and weights > weight:
            bucket.seconds = seconds
            bucket.over_at = now
            self.over_until = now + _LATELY_S
            return False
        seconds -= cost_s
        bucket.seconds = max(-BURST_S, seconds)
        return True

    def refund(self, job: str, cost_s: float) -> None:
        """A message whose cost was taken off will ask again."""
        bucket = self._buckets.get(job)
        if bucket is not None:
            bucket.seconds = min(BURST_S, bucket.seconds + cost_s)

    def is_alone(self, job: str) -> bool:
        """Whether no other job has had anything to do lately."""
        bucket = self._buckets.get(job)
        return bucket is not None and self._weights <= bucket.weight

    def has_too_much(self, job: str, now: float) -> bool:
        """Whether a job has wanted more than its share lately."""
        bucket = self._buckets.get(job)
        return bucket is not None and now - bucket.over_at <= _LATELY_S

    def forget_job(self, job: str) -> None:
        self._buckets.pop(job, None)
        self._counted_at = float("-inf")
