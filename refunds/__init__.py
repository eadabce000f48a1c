"""The domain of refunds: plain values and rules.

Nothing here knows of Temporal, SQL, HTTP or Stripe's SDK. Every function is pure unless its name says otherwise, so a rule can be read,
tested and reasoned about on its own; the other packages only carry these values around.
"""
