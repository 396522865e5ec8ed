"""What a factory makes and what owns rows: stepping, resetting, saving and describing it."""
