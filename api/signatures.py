"""Whether a body was signed by an endpoint of Stripe's that is ours, by Stripe's own verification.

The only module of the API that imports Stripe's library, and only for this: it holds no key of the processor and cannot call it. Looked up before anything of
the body is read as more than bytes.
"""

from collections.abc import Sequence

from stripe import SignatureVerificationError, WebhookSignature

from refunds.errors import Code, RefundError

HEADER = "Stripe-Signature"


def check(body: bytes, header: str | None, secrets: Sequence[str], *, tolerance_s: int) -> None:
    """Return if one of the secrets signed exactly this body within the tolerance; the comparison takes the same time whatever differs.

    Raises ``WEBHOOKS_NOT_CONFIGURED`` without secrets, ``SIGNATURE_MISSING``, ``SIGNATURE_INVALID``, or ``SIGNATURE_EXPIRED`` for one that is right and old,
    which is what an event that was recorded and is played again has.
    """
    if not secrets:
        raise RefundError(Code.WEBHOOKS_NOT_CONFIGURED)
    if not header:
        raise RefundError(Code.SIGNATURE_MISSING)
    # The library compares text, and only ASCII in constant time; a body that is not UTF-8 is none that Stripe has signed.
    if not header.isascii() or not any(_signed(body, header, secret, None) for secret in secrets):
        raise RefundError(Code.SIGNATURE_INVALID)
    if not any(_signed(body, header, secret, tolerance_s) for secret in secrets):
        raise RefundError(Code.SIGNATURE_EXPIRED)


def _signed(body: bytes, header: str, secret: str, tolerance_s: int | None) -> bool:
    try:
        WebhookSignature.verify_header(body, header, secret, tolerance_s)
    except (SignatureVerificationError, UnicodeDecodeError):
        return False
    return True
