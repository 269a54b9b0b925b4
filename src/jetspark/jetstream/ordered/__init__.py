"""Ordered consumers, and watches on subjects, which are built on them."""
