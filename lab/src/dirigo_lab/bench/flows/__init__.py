"""What whole flows cost on one core."""
