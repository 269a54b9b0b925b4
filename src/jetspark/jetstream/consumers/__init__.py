"""Consumers: create, change, bind, list, pause, reset, delete; pull and push."""
