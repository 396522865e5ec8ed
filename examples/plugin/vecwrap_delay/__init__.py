"""Rewards that are paid at an episode's end: a layer and a rule for vecwrap."""
