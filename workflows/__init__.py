"""Deterministic orchestration: what happens in which order, and what is waited for. Steps are named by ``refunds.messages.Step`` and never imported."""
