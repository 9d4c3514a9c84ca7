"""Operations that keep a state: how they are called, and what a call must be."""
