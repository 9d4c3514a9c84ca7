"""Kernels in Triton and Gluon: paged/ and latent/ attention, states/, and how all are launched.

Kernels are imported with torch and triton: this is for a worker or a user's own program.
"""
