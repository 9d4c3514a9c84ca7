from faulty import declare

BACKEND = declare("OVERRUNS")
