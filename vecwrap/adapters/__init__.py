"""Adapters to and from other libraries' environments; a library is imported only when its adapter is used."""
