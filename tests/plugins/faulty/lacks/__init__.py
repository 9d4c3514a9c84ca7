from faulty import declare

BACKEND = declare("LACKS")
