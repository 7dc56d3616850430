"""Benchmarks of the parts that every message passes: the kernel's message path, its barriers, and the simulator."""

from dirigo.bench.report import BenchReport, Sizes, run_all
from dirigo.bench.tables import render

__all__ = ["BenchReport", "Sizes", "render", "run_all"]
