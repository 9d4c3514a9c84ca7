"""Operations that keep a state, in Triton: a module for each, named after the operation."""
