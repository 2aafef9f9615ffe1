"""What is learnt: weights, promises, gradients, rules. Nothing here imports simpy."""
