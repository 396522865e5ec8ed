"""Rewards that are paid at an episode's end: a layer for vecwrap."""
