"""What the command ``vecwrap`` does. Only this package uses terminal libraries."""
