"""The presets, one file each; their names stand in vecwrap/registry.py."""
