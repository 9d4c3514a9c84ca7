from faulty import declare

BACKEND = declare("CRASHES")
