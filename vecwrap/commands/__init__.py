"""The implementation of the ``vecwrap`` command. Only this package uses terminal libraries."""
