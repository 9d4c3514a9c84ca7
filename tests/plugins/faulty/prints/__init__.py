from faulty import declare

BACKEND = declare("PRINTS")
