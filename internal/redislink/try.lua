-- Tries a command.
-- KEYS: a key in the slot of the command's keys
-- ARGV: the command and its arguments
-- Returns the error of the command, or '' if there is none
local said = redis.pcall(unpack(ARGV))
return type(said) == 'table' and said.err or ''
