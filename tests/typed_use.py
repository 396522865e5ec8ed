"""What type checkers say of a user's program; `make lint` reads it, and an ignore that is not needed is an error."""

import vecwrap

env: vecwrap.VecEnv = vecwrap.build("CartPole-v1", n=2)
vecwrap.biuld  # type: ignore[attr-defined]  # noqa: B018
