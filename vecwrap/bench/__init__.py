"""Compare what a pipeline costs here and elsewhere, for ``vecwrap bench`` and ``make bench``.

Workers import nothing from here, and no peer is imported before it is requested.
"""
