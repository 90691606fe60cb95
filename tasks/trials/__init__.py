"""Trials: episodes of one problem, such as a bandit, that an agent must explore."""
