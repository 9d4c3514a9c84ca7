"""Measures backends and their knobs on a workload's points, and writes what won as a profile.

The command's process plans, searches and keeps the journal; a worker child imports torch, runs the
candidates and times them.
"""
