"""Finds a latency objective that a flow can be held to: twice its tail latency, alone and at half utilisation.

A probe with sources as fast as they go tells what a row costs; from that comes the constant rate that keeps the workers busy
half of the time. Results are dropped meanwhile, so that nothing of the user's is overwritten.
"""

from dirigo.calibration.measurement import Calibration, Measurement
from dirigo.calibration.search import calibrate

__all__ = ["Calibration", "Measurement", "calibrate"]
