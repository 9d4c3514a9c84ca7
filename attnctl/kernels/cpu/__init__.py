"""Kernels of a processor: C++ sources, each built on first use, or torch where they cannot be.

paged.open_kernels() gives the object that computes paged attention, latent.open_latent() and
open_indexer() those of latent attention, state_call.open_states() the one that advances states,
each with the finding that says what it is. built_runtime.py is what their runtimes share.

call.py packs the calls of paged attention, checks.py looks at them first, and fallback.py is the
same in torch; latent_*.py, indexer_call.py and state_*.py pack and look at the others. build*.py
and shared_object.py compile the sources and keep what came of it.
"""
