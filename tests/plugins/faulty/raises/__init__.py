from faulty import declare

BACKEND = declare("RAISES")
