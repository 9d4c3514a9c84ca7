from faulty import declare

BACKEND = declare("LEAVES_NAN")
