"""What can be computed of the rows of a group: the functions users write, one file per family."""

from __future__ import annotations

from dirigo.flow.aggregates.base import Aggregate
from dirigo.flow.aggregates.count import count
from dirigo.flow.aggregates.distinct import distinct
from dirigo.flow.aggregates.first_and_last import first, last
from dirigo.flow.aggregates.histogram import histogram
from dirigo.flow.aggregates.min_and_max import max_, min_
from dirigo.flow.aggregates.quantiles import median, quantile
from dirigo.flow.aggregates.sum_and_avg import avg, sum_
from dirigo.flow.aggregates.top import top
from dirigo.flow.aggregates.variance import stddev, variance

__all__ = [
    "Aggregate",
    "avg",
    "count",
    "distinct",
    "first",
    "histogram",
    "last",
    "max_",
    "median",
    "min_",
    "quantile",
    "stddev",
    "sum_",
    "top",
    "variance",
]
