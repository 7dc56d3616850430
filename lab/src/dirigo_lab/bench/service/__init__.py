"""What the service on Spark costs and gives, beside what it is to be compared with."""
