"""Kernels of a processor: C++ sources, each built on first use, or torch where they cannot be.

paged.open_kernels() gives the object that computes paged attention, latent.open_latent() and
open_indexer() those of latent attention, state_call.open_states() the one that advances states,
each with the finding that says what it is.
"""
