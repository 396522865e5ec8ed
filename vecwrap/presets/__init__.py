"""The presets, one file each; their names are in vecwrap/registry.py."""
