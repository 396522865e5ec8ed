"""Rewards that are paid at an episode's end: a wrapper for vecwrap."""
