"""The page of `make watch WEB=1`: three fixed files and the state as JSON."""
