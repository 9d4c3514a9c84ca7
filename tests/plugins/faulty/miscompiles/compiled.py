"""What a test of cross-compilation asks for: one fault a window."""

CASES = tuple(f"paged(queries=1,contexts=16,window={window})" for window in range(1, 9))
