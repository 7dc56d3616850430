"""What the runtime itself costs: a measurement on real workers, by which simulations go."""
