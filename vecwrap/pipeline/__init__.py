"""A pipeline as a line, file or mapping, to a spec, a checked plan, and a live environment."""
