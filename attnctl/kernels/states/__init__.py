"""Operations that keep a state: how they are called, and what a call must be.

runtime.py is the runtime of all of them and chooses what computes, knobs.py what may be set of the
Triton kernels; operands_checks.py, checks.py and batch_checks.py refuse inputs, calls and batches.
"""
