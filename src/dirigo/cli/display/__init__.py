"""How commands speak: tables, amounts, progress."""
