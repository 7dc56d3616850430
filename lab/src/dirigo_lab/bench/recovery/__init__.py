"""What snapshots cost while nothing happens, and how soon a job whose worker was killed gives results again."""
