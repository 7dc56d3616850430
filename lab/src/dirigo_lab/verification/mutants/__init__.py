"""Deliberate mistakes in the protocol. Each must be caught by a named invariant, or the checks have a hole.

A mutant replaces one function of the kernel for the time of a search. Most are mistakes that were made, or nearly made, when
the protocol was designed; the others are the slips that anybody could make when changing it.
"""

from dirigo_lab.verification.mutants import acknowledgments, cuts, forwards, leases, outputs, recoveries, rounds, snapshots
from dirigo_lab.verification.mutants.mutant import MUTANTS, Mutant, mutant_named

__all__ = [
    "MUTANTS",
    "Mutant",
    "acknowledgments",
    "cuts",
    "forwards",
    "leases",
    "mutant_named",
    "outputs",
    "recoveries",
    "rounds",
    "snapshots",
]
