from faulty import declare

BACKEND = declare("FLOODS")
