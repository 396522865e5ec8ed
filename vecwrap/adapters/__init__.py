"""Adapters to and from other libraries' environments; using an adapter imports its library."""
