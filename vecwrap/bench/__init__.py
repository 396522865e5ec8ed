"""Side by side: what a pipeline costs here and elsewhere. Serves ``vecwrap bench`` and ``make bench``.

Nothing here is imported by a worker, and no peer is imported before it is asked for.
"""
