-- Tries a command.
-- KEYS: a key in the slot of the command's
-- ARGV: the command
-- Returns the error that Redis gave it, or ''
local said = redis.pcall(unpack(ARGV))
return type(said) == 'table' and said.err or ''
