"""Consumers: make, change, bind, list, delete; what a bound one can do."""
