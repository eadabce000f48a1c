"""The record that proves itself: entries in canonical form, the tree over them, signed checkpoints, and how all of it is judged."""
