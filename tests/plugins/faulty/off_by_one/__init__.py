from faulty import declare

BACKEND = declare("OFF_BY_ONE")
