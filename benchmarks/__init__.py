"""Timing against other libraries on one machine; not imported by the product."""
