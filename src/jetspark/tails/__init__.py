"""The tail of a table: what its stream has that no commit of the table has yet."""
