"""Cross-compilation: what the bundled Triton kernels become on GPUs that this machine lacks.

A case is an operation's own case, run on tensors without memory; what the backend would launch is
recorded and compiled for the target. Only worker.py, record.py and compiler.py import torch or
triton; they run in a child process.
"""
