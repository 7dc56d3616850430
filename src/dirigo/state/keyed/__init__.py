"""States per key: one instance of a function holds, for each state, the values of many keys. Knows no rows and no time."""
