from faulty import declare

BACKEND = declare("MISCOMPILES")
