"""Latent attention in Triton, dense and sparse, its indexer, and in Gluon for Hopper.

Kernels: decode.py and sparse.py (the absorbed form), prefill.py (the uncompressed form), hopper.py
with hopper_*.py, indexer.py and pick.py, merge_states.py, reduce.py, scatter_rows.py and
settle_rows.py; tile.py is what they share. Calls: call.py, hopper_call.py, prefill_call.py and
indexer_call.py. launch.py chooses tiles, knobs.py names them.
"""
