"""The steps with side effects, one file a step. Temporal may run any of them twice, or overlapping: each answers from the store and changes nothing the
second time."""
