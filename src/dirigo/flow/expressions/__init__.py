"""The parts of expressions. Import what you need from `dirigo.flow.expressions.expression`."""
