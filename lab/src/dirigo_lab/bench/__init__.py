"""Benchmarks: the kernel's message path and barriers, strategies, the simulator, the generator, and whole flows."""

from dirigo_lab.bench.report import QUICK, BenchReport, Sizes, run_all
from dirigo_lab.bench.tables import render

__all__ = ["QUICK", "BenchReport", "Sizes", "render", "run_all"]
