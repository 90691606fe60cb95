"""Exploration of rooms by an agent that is curious."""
