"""The policy: a merchant's rules as data, and the judgement of facts under them.

``load_policy`` reads YAML, ``evaluate`` judges, ``policy_hash`` names the content. Nothing here moves money or asks anybody.
"""

from refunds.policy.evaluate import evaluate
from refunds.policy.load import (
    LARGEST_BYTES,
    PolicyError,
    Problem,
    load_policy,
    policy_hash,
    sample_policy,
    sample_policy_text,
)
from refunds.policy.model import Policy, ReviewRole

__all__ = [
    "LARGEST_BYTES",
    "Policy",
    "PolicyError",
    "Problem",
    "ReviewRole",
    "evaluate",
    "load_policy",
    "policy_hash",
    "sample_policy",
    "sample_policy_text",
]
