"""Migrations of the schema, and what they do to the rows that are there."""
