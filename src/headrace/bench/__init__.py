"""Measurements. Speeds are compared within one run, because machines differ and are noisy."""

from headrace.bench.catalog import BENCHMARKS, BenchResult, run_benchmark

__all__ = ["BENCHMARKS", "BenchResult", "run_benchmark"]
