"""A Stripe-compatible HTTP server for tests, demos and running without keys. See docs/sandbox.md.

The application talks to it through the official SDK by base address. It imports nothing of the application, so that a
mistake in the application's own tables (currencies, statuses) is not repeated here and hidden by it.
"""
