"""Operations: the mathematics, apart from who computes it.

One file per operation: shapes in words, a plain-torch reference that is the specification, and the
cases that every backend of it is tried on. Shape alphabet, used in every docstring:

B sequences, T query tokens (all sequences packed), S context tokens, H query heads, Hk KV heads,
D key width, Dv value width, P page (block) size, N pages, C channels, W conv width, R state rank.
"""
