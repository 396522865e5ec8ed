"""What type checkers say of a user's program: `make lint` reads it, and an ignore that is not needed is an error."""

import vecwrap


def use() -> vecwrap.VecEnv:
    """Never called."""
    vecwrap.biuld  # type: ignore[attr-defined]  # noqa: B018
    return vecwrap.build("CartPole-v1", n=2)
