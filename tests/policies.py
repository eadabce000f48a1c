"""Policies of tests, made from the sample."""

from refunds.policy import sample_policy_text

_BEGIN, _END = "# More limits over time", "# Signals of fraud."


def with_limits(*written: str) -> str:
    """The sample policy, with these limits instead of its own: each as it is written between braces."""
    text = sample_policy_text()
    assert text.count(_BEGIN) == text.count(_END) == 1
    before, _, rest = text.partition(_BEGIN)
    after = rest[rest.index(_END) :]
    section = "limits:\n" + "".join(f"  - {{ {one} }}\n" for one in written) + "\n" if written else ""
    return before + section + after


def with_breakers(*written: str) -> str:
    """The sample policy without limits, with these breakers: each as it is written between braces."""
    return without_limits() + "\nbreakers:\n" + "".join(f"  - {{ {one} }}\n" for one in written)


def without_limits() -> str:
    """The sample policy without breakers, and without limits over time besides those of one customer."""
    return with_limits()
