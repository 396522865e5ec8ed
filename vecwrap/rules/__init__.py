"""Mistakes of order and use in a pipeline: ``check``, and the nineteen rules."""
