"""The calls of the outside contract, one file a noun."""
