"""Latent attention, dense and sparse: what its backends share, and the libraries that they call.

dense.py and sparse.py are the calls, on cache.py, prefill.py (the uncompressed form), rows.py and
the checks. Adapters begin with adapter.py and tokens.py, and call aiter.py, flashinfer.py or
flashmla.py. plain.py and plain_indexer.py compute in torch on a processor without a compiler.
"""
