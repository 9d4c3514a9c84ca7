"""Operations that keep a state, in Triton: a module for each, named after the operation.

Long rows go to others: gdn_prepare.py or kda_prepare.py, then gdn_chunks.py; mamba1_scan.py;
decayed.py for mamba2 and linear; conv_tiles.py. rows.py and conv_pieces.py are what kernels share,
launch.py chooses tiles.
"""
