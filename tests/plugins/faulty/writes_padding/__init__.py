from faulty import declare

BACKEND = declare("WRITES_PADDING")
