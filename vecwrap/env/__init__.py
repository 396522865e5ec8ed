"""VecEnv, its wrappers, the backend, and what they share: bookkeeping, saving, pictures."""
