"""Stripe Connect: where the money of a payment went, and the legs that return it. Each call is one leg with a key of its own."""

import asyncio
from datetime import datetime

from activities.processors import answers, leg_answers
from activities.processors.stripe_calls import StripeCalls, by_charge, ended, reading, segment, sending
from refunds.marketplace import FeeState, FundsFlow, LegKind, LegReceipt, LegRequest, MoneyFlow, TransferState
from refunds.processor import NotSent


class StripeMarketplace(StripeCalls):
    """The interface ``Marketplace``. Acts for the platform: payments that were made directly on a connected account are not seen."""

    async def read_flow(self, processor_payment: str) -> MoneyFlow | None:
        """Read a payment's transfers and its fee. Raises ``NotSent``; ``None`` when Stripe does not know the payment."""
        read_at = self._clock.now()
        with reading():
            charge = await self._charge_that_took(processor_payment)
            return await self._flow_of(processor_payment, charge, read_at)
        return None

    async def _flow_of(self, processor_payment: str, charge: answers.Json | None, read_at: datetime) -> MoneyFlow:
        if charge is None:
            return MoneyFlow(processor_payment, None, FundsFlow.PLATFORM, (), None, read_at)
        with reading():
            transfers = asyncio.ensure_future(self._transfers(charge))
            fee = asyncio.ensure_future(self._fee(charge))
            await ended(transfers, fee)
            return MoneyFlow(processor_payment, answers.text(charge, "id"), *transfers.result(), fee.result(), read_at)
        raise NotSent("not_found", "Stripe does not know a transfer or a fee that it named itself")

    async def reverse_transfer(self, request: LegRequest, *, send_before: float) -> LegReceipt:
        """Send the frozen request. Raises ``Refused``, ``NotSent``, ``Unknown`` or :class:`SendTooLate`."""
        _must_be(request, LegKind.REVERSE_TRANSFER)
        with sending(send_before):
            answer = await self._post("transfer.reverse", _reversals(request.target), request.idempotency_key, request.params)
            return leg_answers.reversal(answer, request.target)

    async def refund_fee(self, request: LegRequest, *, send_before: float) -> LegReceipt:
        """Send the frozen request. Raises ``Refused``, ``NotSent``, ``Unknown`` or :class:`SendTooLate`."""
        _must_be(request, LegKind.REFUND_FEE)
        with sending(send_before):
            answer = await self._post("fee.refund", _fee_refunds(request.target), request.idempotency_key, request.params)
            return leg_answers.fee_refund(answer, request.target)

    async def returned_of(self, kind: LegKind, target: str) -> tuple[LegReceipt, ...]:
        """All reversals of a transfer, or all refunds of a fee. Raises ``NotSent``."""
        with reading():
            if kind is LegKind.REVERSE_TRANSFER:
                return tuple([leg_answers.reversal(found, target) for found in await self._every("transfer_reversal", _reversals(target))])
            return tuple([leg_answers.fee_refund(found, target) for found in await self._every("fee_refund", _fee_refunds(target))])
        raise NotSent("not_found", "Stripe does not know the transfer or the application fee")

    async def _charge_that_took(self, processor_payment: str) -> answers.Json | None:
        if by_charge(processor_payment):
            charges = [answers.an_object(await self._get(f"/v1/charges/{segment(processor_payment)}"), "charge")]
        else:
            charges = (await self._intent(processor_payment))[1]
        return next((charge for charge in charges if answers.taken(charge)), None)

    async def _intent(self, processor_payment: str) -> tuple[object, list[answers.Json]]:
        """A PaymentIntent and the charges that account for what it received."""
        found = await self._get(f"/v1/payment_intents/{segment(processor_payment)}", expand=["latest_charge"])
        charges = answers.charges_shown(found, processor_payment)
        return found, await self._every("charge", "/v1/charges", payment_intent=processor_payment) if charges is None else charges

    async def _transfers(self, charge: answers.Json) -> tuple[FundsFlow, tuple[TransferState, ...]]:
        """The transfer that came with the charge; else those of its transfer group, which Stripe names after a charge that was given none."""
        charge_id, own = answers.text(charge, "id"), answers.text_or_none(charge, "transfer")
        if own is not None:
            return FundsFlow.DESTINATION, (await self._transfer(await self._get(f"/v1/transfers/{segment(own)}")),)
        group = answers.text_or_none(charge, "transfer_group") or f"group_{charge_id}"
        listed = await self._every("transfer", "/v1/transfers", transfer_group=group)
        theirs = [found for found in listed if answers.text_or_none(found, "source_transaction") in (None, charge_id)]
        transfers = tuple([await self._transfer(found) for found in theirs])
        return FundsFlow.SEPARATE if transfers else FundsFlow.PLATFORM, transfers

    async def _transfer(self, found: object) -> TransferState:
        transfer_id = answers.text(answers.an_object(found, "transfer"), "id")
        return leg_answers.transfer(found, await self._every("transfer_reversal", _reversals(transfer_id)))

    async def _fee(self, charge: answers.Json) -> FeeState | None:
        fee = answers.text_or_none(charge, "application_fee")
        if fee is None:
            return None
        found = await self._get(f"/v1/application_fees/{segment(fee)}")
        refunds = await self._every("fee_refund", _fee_refunds(fee))
        return leg_answers.fee(found, refunds)


def _must_be(request: LegRequest, kind: LegKind) -> None:
    if request.kind is not kind:
        raise ValueError(f"a request to {request.kind} is not one to {kind}")


def _reversals(transfer: str) -> str:
    return f"/v1/transfers/{segment(transfer)}/reversals"


def _fee_refunds(fee: str) -> str:
    return f"/v1/application_fees/{segment(fee)}/refunds"
