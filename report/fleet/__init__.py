"""How many replicas, when: a discrete-event simulation with the batch times that the load tests measured."""
