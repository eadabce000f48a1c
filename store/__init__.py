"""PostgreSQL: the business record, and the only place that speaks SQL.

One task is one transaction. Locks are always taken in one order (stop, payment, refund, customer), then read in the next statement: under READ COMMITTED a
check in the statement that waited for the lock reads the past. Every change of a refund goes through :mod:`store.changes`, which writes its ledger
row in the same transaction.
"""
