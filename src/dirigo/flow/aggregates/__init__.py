"""What can be computed of the rows of a group: the functions users write, one file per family."""

from __future__ import annotations

from dirigo.flow.aggregates.adding import avg, sum_
from dirigo.flow.aggregates.base import Aggregate
from dirigo.flow.aggregates.counting import count
from dirigo.flow.aggregates.distinct import distinct
from dirigo.flow.aggregates.extremes import max_, min_
from dirigo.flow.aggregates.histogram import histogram
from dirigo.flow.aggregates.picking import first, last
from dirigo.flow.aggregates.quantiles import median, quantile
from dirigo.flow.aggregates.spread import stddev, variance
from dirigo.flow.aggregates.top import top

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
