"""The one table of options, their names on each surface, and the values of their texts."""
