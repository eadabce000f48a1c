"""The catalogue: what every code means and what can be done, in one table that is printed by the docs and the API."""

from dataclasses import dataclass

from refunds.codes import Code


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code means: its HTTP status (0 when it is never an HTTP error), the meaning, the remedy, and whether the same call may be repeated."""

    http: int
    meaning: str
    remedy: str
    retryable: bool = False


_C = Code
CATALOGUE: dict[Code, Meaning] = {
    _C.MALFORMED_JSON: Meaning(400, "The body is not JSON.", "Send one JSON object."),
    _C.UNSUPPORTED_MEDIA_TYPE: Meaning(
        415, "The Content-Type header says that the body is not JSON in UTF-8.", "Send the header Content-Type: application/json."
    ),
    _C.INVALID_FIELD: Meaning(422, "A field has a wrong type or value.", "Correct the named field."),
    _C.UNKNOWN_FIELD: Meaning(422, "The body has a field this call does not take.", "Remove or rename the named field."),
    _C.BODY_TOO_LARGE: Meaning(413, "The body is larger than this call takes.", "Shorten it; long text is cut by the sender, never here."),
    _C.AMBIGUOUS_HEADER: Meaning(400, "A header stands twice, or two headers contradict each other.", "Send the named header once."),
    _C.RATE_LIMITED: Meaning(429, "Too many calls with this key.", "Wait for Retry-After seconds, then repeat.", retryable=True),
    _C.UNAUTHENTICATED: Meaning(401, "The key is missing, unknown, expired or revoked.", "Send Authorization: Bearer with a current key."),
    _C.FORBIDDEN: Meaning(403, "This key does not hold the role the call needs.", "Use a key with the named role."),
    _C.NOT_FOUND: Meaning(404, "There is nothing at this address.", "Check the address against the API description."),
    _C.METHOD_NOT_ALLOWED: Meaning(405, "This address does not take that method.", "Use a method the API description names."),
    _C.SIGNATURE_MISSING: Meaning(400, "The Stripe-Signature header is missing.", "Only the processor sends here; it signs each event."),
    _C.SIGNATURE_INVALID: Meaning(
        400, "The signature is not of this body with any secret of ours.", "Compare STRIPE_WEBHOOK_SECRETS with the endpoint's secret."
    ),
    _C.SIGNATURE_EXPIRED: Meaning(
        400, "The event was signed too long ago.", "Have it sent again, which signs it anew; check this machine's clock."
    ),
    _C.WEBHOOKS_NOT_CONFIGURED: Meaning(
        503,
        "No secret of an endpoint is configured; nothing was stored.",
        "Set STRIPE_WEBHOOK_SECRETS; events are sent again by themselves.",
        retryable=True,
    ),
    _C.IDEMPOTENCY_KEY_REQUIRED: Meaning(
        400,
        "The Idempotency-Key header is missing or malformed.",
        "Send 1 to 255 printable ASCII characters, new for each refund.",
    ),
    _C.IDEMPOTENCY_KEY_REUSED: Meaning(422, "This Idempotency-Key was used with another body.", "Use a new key for a new refund."),
    _C.UNKNOWN_CURRENCY: Meaning(422, "The currency cannot be refunded here.", "Use the payment's currency, as a three-letter code."),
    _C.CURRENCY_MISMATCH: Meaning(422, "The currency is not the payment's.", "Ask in the payment's currency; nothing is converted."),
    _C.AMOUNT_REQUIRED: Meaning(
        422, "Neither an amount, full, lines nor shipping was given.", "Send one of them; an amount with its currency."
    ),
    _C.AMOUNT_AND_FULL: Meaning(422, "Both an amount and full were given.", "Send one of the two."),
    _C.AMOUNT_NOT_INTEGER: Meaning(422, "The amount is not a JSON integer.", "Send minor units as an integer, such as 3000 for $30.00."),
    _C.AMOUNT_NOT_POSITIVE: Meaning(422, "The amount is not above zero.", "Ask for at least 1 minor unit, or full: true."),
    _C.AMOUNT_TOO_LARGE: Meaning(422, "The amount is larger than any payment.", "Check the unit: amounts are minor units."),
    _C.AMOUNT_NOT_SENDABLE: Meaning(422, "The currency's smallest step does not divide the amount.", "Ask for one of the named amounts."),
    _C.AMOUNT_UNREADABLE: Meaning(422, "The text is not an amount as that locale writes it.", "Write it like the example."),
    _C.ORDER_NOT_FOUND: Meaning(404, "This customer has no such order.", "Check order_id and customer_id; send the order first."),
    _C.PAYMENT_NOT_FOUND: Meaning(404, "The order has no such payment.", "Check payment_id against the order."),
    _C.PAYMENT_NAMED_OTHERWISE: Meaning(
        404,
        "The order records its payments by another kind of id: a charge where a PaymentIntent was named, or the other way round.",
        "Send payment_id as it stands on the order.",
    ),
    _C.PAYMENT_IS_REFUND: Meaning(
        422,
        "The id is a refund's, not a payment's.",
        "Send the PaymentIntent (pi_...) or charge (ch_...) that was refunded in the named field.",
    ),
    _C.PAYMENT_IS_CHECKOUT_SESSION: Meaning(
        422, "The id is a Checkout Session's, not a payment's.", "Send the session's payment_intent (pi_...) in the named field."
    ),
    _C.PAYMENT_IS_INVOICE: Meaning(
        422, "The id is an invoice's, not a payment's.", "Send the PaymentIntent (pi_...) that paid the invoice in the named field."
    ),
    _C.PAYMENT_IS_SETUP_INTENT: Meaning(
        422,
        "The id is a SetupIntent's: it prepares payments and takes no money.",
        "Send the PaymentIntent (pi_...) that took the money in the named field.",
    ),
    _C.PAYMENT_IS_CLIENT_SECRET: Meaning(
        422,
        "This is a client secret, not an id: whoever has it can act on the payment in a browser.",
        "Send the PaymentIntent's id, the part before _secret_, in the named field; keep the secret out of logs.",
    ),
    _C.PAYMENT_IS_DISPUTE: Meaning(
        422, "The id is a dispute's, not a payment's.", "Send the dispute's payment_intent or charge in the named field."
    ),
    _C.PAYMENT_IS_BALANCE_TRANSACTION: Meaning(
        422,
        "The id is a balance transaction's, not a payment's.",
        "Send its source, when that is a charge (ch_..., py_...), in the named field.",
    ),
    _C.PAYMENT_IS_OTHER_OBJECT: Meaning(
        422,
        "The id is that of something else at the processor, not a payment's.",
        "Send the PaymentIntent (pi_...) or charge (ch_..., py_...) in the named field.",
    ),
    _C.AMBIGUOUS_PAYMENT: Meaning(
        409,
        "The order has several payments and none was named.",
        "Repeat with one of the named payments as payment_id, or ask for a refund of the whole order with POST /v1/refund-groups.",
    ),
    _C.CUSTOMER_NOT_FOUND: Meaning(
        404, "There is no such customer.", "Check the id: it is the one that orders and requests name as customer_id."
    ),
    _C.CUSTOMER_FORGOTTEN: Meaning(
        410, "This customer was forgotten: nothing is left that tells of the person.", "Nothing more can be shown."
    ),
    _C.CUSTOMER_HAS_OPEN_REFUNDS: Meaning(
        409,
        "Refunds of this customer are under way, and whoever decides on them needs what was written.",
        "Let the named refunds come to their end, or withdraw them, then repeat.",
    ),
    _C.REFUND_NOT_FOUND: Meaning(404, "There is no such refund in sight of this key.", "Check the id and whose key it is."),
    _C.LEG_NOT_FOUND: Meaning(404, "The refund has no such leg.", "Read the refund: it lists its legs with their ids."),
    _C.LEDGER_ENTRY_NOT_FOUND: Meaning(
        404, "The ledger has no entry of this number.", "Read the checkpoint: it says how many entries there are."
    ),
    _C.CHECKPOINT_NOT_FOUND: Meaning(
        404,
        "No checkpoint of the ledger signs this.",
        "Have one made (POST /v1/ledger/checkpoint), or name a size that was signed; see docs/ledger.md.",
    ),
    _C.CONNECTED_ACCOUNT: Meaning(
        422,
        "Payments made directly on a connected account cannot be refunded here.",
        "Refund it with the connected account's own key; see docs/marketplaces.md.",
    ),
    _C.GROUP_NOT_FOUND: Meaning(404, "There is no such group in sight of this key.", "Check the id and whose key it is."),
    _C.GROUP_NOT_COVERED: Meaning(
        409,
        "The order's payments together do not hold what is asked for; nothing was made.",
        "Ask for at most what the payments named in the answer still hold, or for one of them alone.",
    ),
    _C.GROUP_TOO_LARGE: Meaning(
        409,
        "It would take more payments than a group may have parts; nothing was made.",
        "Ask for an amount that fewer payments hold, then for the rest, or for the payments one by one.",
    ),
    _C.LINES_AND_FULL: Meaning(
        422, "Both lines or shipping and full were given.", "Send full: true for everything that is left, or the lines."
    ),
    _C.LINE_TWICE: Meaning(422, "The same line is named twice.", "Name it once, with the whole quantity."),
    _C.LINE_NOT_FOUND: Meaning(404, "The order has no such line.", "Check the line's id against the order as it is recorded now."),
    _C.LINE_NOT_LEFT: Meaning(
        422, "It is more than what is left of a line, or of the shipping, to refund.", "Ask for at most the units that are left."
    ),
    _C.LINES_OF_SEVERAL_PAYMENTS: Meaning(
        409,
        "The order was paid in several payments, so no line belongs to one of them.",
        "Ask for these lines with POST /v1/refund-groups, or by amount and payment_id without lines.",
    ),
    _C.ORDER_CONFLICT: Meaning(
        409,
        "The order contradicts what is recorded.",
        "A payment stays with its order and customer; correct the named field.",
    ),
    _C.SELF_APPROVAL: Meaning(
        403,
        "Who asked for these terms or wrote them, or has a part in them otherwise, cannot approve them.",
        "Ask another person, who decides in a right of their own.",
    ),
    _C.ROLE_TOO_LOW: Meaning(403, "These terms need a higher role.", "Ask somebody with the named role."),
    _C.REVIEWER_LIMIT: Meaning(
        409, "You have approved as much as one reviewer may in this time.", "Somebody else decides, or you when the limit opens again."
    ),
    _C.PERSON_REQUIRED: Meaning(403, "Only a person may do this, never a service or an agent.", "Use a person's own key."),
    _C.ABOVE_OWN_LIMIT: Meaning(
        403,
        "It is more than this person may approve.",
        "Ask a colleague who may approve more, or deny it. An operator sets these limits: PUT /v1/people/{id}/approving.",
    ),
    _C.SPECIALIST_REQUIRED: Meaning(403, "These terms are for named specialists.", "Ask one of those that the refund names, or deny it."),
    _C.DELEGATION_INVALID: Meaning(
        403,
        "No delegation that is in force lets you decide this for that person.",
        "Read GET /v1/delegations; decide in your own right, or ask them to delegate it.",
    ),
    _C.REASON_REQUIRED: Meaning(422, "A decision on these terms needs its reason.", "Say why in note."),
    _C.EVIDENCE_MISSING: Meaning(
        409,
        "Evidence that the policy asks for is not there yet.",
        "Attach what is named as missing with POST /v1/refunds/{id}/evidence, then decide again; or deny it.",
    ),
    _C.SECOND_PERSON_REQUIRED: Meaning(409, "A second person must say the same.", "Ask another settler to repeat the call."),
    _C.RESUME_NEEDS_ANOTHER_PERSON: Meaning(
        403, "Who stopped refunds cannot resume them.", "Ask another operator to look and to resume; it must be a person."
    ),
    _C.TERMS_CHANGED: Meaning(409, "The terms are not the ones you saw.", "Read the refund again and decide on its present terms_hash."),
    _C.ALREADY_DECIDED: Meaning(409, "Somebody has decided otherwise.", "Read the refund; the first decision stands."),
    _C.DECIDED_TOGETHER: Meaning(
        409, "It is part of a group that is decided together.", "Decide on the group: POST /v1/refund-groups/{group}/decisions or /consent."
    ),
    _C.REVIEW_EXPIRED: Meaning(409, "The time for a decision is over.", "Read the refund; ask for a new one if it has expired."),
    _C.CONSENT_EXPIRED: Meaning(409, "The time for consent is over.", "Ask for a new refund."),
    _C.NOT_AWAITING_REVIEW: Meaning(409, "This refund does not wait for a reviewer.", "Read the refund for what it waits for."),
    _C.NOT_AWAITING_CONSENT: Meaning(409, "This refund does not wait for consent.", "Read the refund for what it waits for."),
    _C.NOT_REVISABLE: Meaning(409, "The terms can no longer be changed.", "Ask for a new refund."),
    _C.TERMS_UNCHANGED: Meaning(
        422, "The revision changes nothing.", "Change amount, payment or reason, or decide on the terms as they are."
    ),
    _C.TOO_LATE: Meaning(409, "It was already sent, or is over.", "Read the refund for how it stands."),
    _C.NOT_PARKED: Meaning(409, "Only a parked refund can be settled by hand.", "Read the refund for how it stands."),
    _C.RECONCILIATION_REQUIRED: Meaning(
        409,
        "The database may have forgotten refunds, and no full reconciliation is done since.",
        "Wait until the one that is under way is done (GET /v1/reconciliation), look at what it found, then repeat.",
    ),
    _C.ERASURES_NOT_REPLAYED: Meaning(
        409,
        "The database may be older than the list of erasures outside of it: somebody who was forgotten may be known again.",
        "Go through the list first: refunds forget --replay FILE (docs/runbooks/forgetting.md), then repeat.",
    ),
    _C.ERASURE_LIST_UNREADABLE: Meaning(
        422,
        "A line of the list of erasures cannot be used.",
        "Use the file as it was written, with the keys it was written with; see the named line.",
    ),
    _C.DISCREPANCY_CLOSED: Meaning(
        409, "This discrepancy is closed.", "If the difference is still there, the next reconciliation opens a new one."
    ),
    _C.POLICY_DATE_TAKEN: Meaning(
        409, "Another policy version takes effect at that very time.", "Name another time; a published version is never edited."
    ),
    _C.SIMULATION_RUNNING: Meaning(
        429, "A simulation runs here already, and one at a time is what it may take.", "Wait for it to end, then repeat.", retryable=True
    ),
    _C.SETTLEMENT_NOT_FOUND: Meaning(
        409, "The processor does not know this refund id.", "Check processor_refund_id in the processor's dashboard."
    ),
    _C.SETTLEMENT_MISMATCH: Meaning(
        409,
        "What the processor has made is not what was approved, or was made for something else or before.",
        "Compare payment, amount, currency and time; the differences are named.",
    ),
    _C.SETTLEMENT_CONTRADICTED: Meaning(
        409,
        "The processor's list shows that it was refunded, or somebody said of a manual part that they gave it back.",
        "Settle as refunded with the named id; what was said of a manual part counts by itself.",
    ),
    _C.ATTEMPT_OPEN: Meaning(409, "A request may still be under way.", "Repeat after the named time.", retryable=True),
    _C.MESSAGE_UNBACKED: Meaning(
        0, "A message names no recorded decision or instruction.", "Send it through the API, which records it first."
    ),
    _C.MESSAGE_MALFORMED: Meaning(0, "A message could not be read.", "Send it through the API."),
    _C.POLICY_DENIED: Meaning(0, "A rule of the policy denies it.", "See the checks; the policy's text is quoted."),
    _C.NOT_COVERED: Meaning(0, "No rule of the policy covers it, and what is not covered is refused.", "See the checks."),
    _C.OUT_OF_SCOPE: Meaning(
        422,
        "Only money from a captured payment is returned here: no credits, payouts or goodwill payments.",
        "Use the system meant for it.",
    ),
    _C.OUTSIDE_WINDOW: Meaning(0, "The return window is over.", "See the checks for its last instant."),
    _C.LIMIT_EXCEEDED: Meaning(
        0,
        "A limit over time is used up.",
        "Its name, what is used and left, and when it opens again are in the answer; what is held goes on by itself then.",
    ),
    _C.LINES_NOT_PRICED: Meaning(
        0, "The order's lines and shipping come to nothing, so they cannot tell what a part costs.", "Ask by amount, or send the prices."
    ),
    _C.LINES_COME_TO_NOTHING: Meaning(0, "Nothing was paid for these units.", "There is nothing to refund for them."),
    _C.LINES_NOT_RETURNED: Meaning(
        0, "Goods that must come back first were sent and have not come back.", "Record returned on the order's lines, then ask again."
    ),
    _C.EXCEEDS_REFUNDABLE: Meaning(0, "It is more than is still refundable.", "Ask for at most the refundable amount shown."),
    _C.ALREADY_REFUNDED: Meaning(0, "Nothing of this payment is left to refund.", "Look at the payment's earlier refunds."),
    _C.ALREADY_RETURNED: Meaning(0, "The money went back through a lost dispute.", "Nothing more is due."),
    _C.PAYMENT_DISPUTED: Meaning(0, "The payment is disputed; a refund would pay twice.", "Answer the dispute first."),
    _C.PAYMENT_NOT_CAPTURED: Meaning(
        0, "No money was taken that could be returned.", "Wait until the payment has succeeded, or cancel it."
    ),
    _C.PAYMENT_PROCESSING: Meaning(
        0, "The payment is still being processed: no money has arrived yet.", "Wait until it has succeeded, then ask again."
    ),
    _C.PAYMENT_CANCELED: Meaning(0, "The payment was cancelled before any money was taken.", "Nothing is due."),
    _C.PAYMENT_INCOMPLETE: Meaning(
        0,
        "The payment failed or was never completed: no money was taken.",
        "Check payment_id: another payment of the order may have been taken.",
    ),
    _C.PAYMENT_MISSING: Meaning(
        0,
        "The processor does not know this payment: its id is wrong, or it is another account's, which look alike.",
        "Check payments.id on the order, and the account it was taken with.",
    ),
    _C.PAYMENT_OTHER_MODE: Meaning(
        0,
        "The payment is of the processor's other mode: a test payment in a live installation, or the other way round.",
        "Send the order's payments.id of this installation's mode.",
    ),
    _C.NO_TRANSFER: Meaning(0, "Nothing of this payment was transferred to a connected account.", "Ask again without reverse_transfer."),
    _C.NO_APPLICATION_FEE: Meaning(0, "No application fee was taken of this payment.", "Ask again without refund_application_fee."),
    _C.TRANSFER_UNCLEAR: Meaning(
        0,
        "A transfer of the same group is tied to no charge: it may belong to another payment.",
        "Ask again without reverse_transfer, and reverse the transfer in the processor's dashboard.",
    ),
    _C.TRANSFER_REVERSED: Meaning(
        0, "All of what was transferred came back already, or is about to.", "Ask again without reverse_transfer."
    ),
    _C.FEE_RETURNED: Meaning(
        0, "All of the application fee was given back already, or is about to be.", "Ask again without refund_application_fee."
    ),
    _C.REVIEWER_DENIED: Meaning(0, "A reviewer denied it.", "See the decision and its note."),
    _C.CONSENT_DECLINED: Meaning(0, "The customer declined these terms.", "Ask for a new refund if other terms are wanted."),
    _C.EMERGENCY_STOP: Meaning(0, "An operator has stopped all refunds.", "It goes on when an operator resumes."),
    _C.DRAFT_MODE: Meaning(0, "The installation prepares refunds and sends none.", "It goes on when an operator sets mode live."),
    _C.PROCESSOR_UNREACHABLE: Meaning(0, "The processor cannot be reached.", "It is tried again by itself; nothing was sent."),
    _C.TERMS_EXPIRED: Meaning(
        0, "The terms expired, or no longer fit the payment, before anything was sent.", "It is quoted again by itself."
    ),
    _C.PAYMENT_HELD: Meaning(
        0,
        "Another refund of this payment came back different from what was approved.",
        "A settler settles that one first; this one then goes on by itself.",
    ),
    _C.PAYMENT_BUSY: Meaning(0, "Another refund of this payment is being sent.", "It waits its turn and then goes on by itself."),
    _C.BREAKER_OPEN: Meaning(
        0,
        "A breaker opened: more went out, failed or was parked than usual.",
        "An operator looks at what is unusual and closes it with a reason; until then it lets a few through after its cool-down.",
    ),
    _C.PROCESSOR_HALTED: Meaning(0, "Submitting to the processor is halted.", "An operator repairs the cause and lifts the halt."),
    _C.KEY_REFUSED: Meaning(
        0,
        "The processor did not accept our key: it is wrong, expired or revoked.",
        "Give the payments role a valid key, then lift the halt.",
    ),
    _C.KEY_NOT_PERMITTED: Meaning(
        0, "Our key may not do what submitting needs.", "Give the key the right to write refunds and payments, then lift the halt."
    ),
    _C.ANSWER_OF_OTHER_MODE: Meaning(
        0,
        "The processor answered from its test side in live mode, or the other way round.",
        "Find out whose key and address the payments role has (REFUNDS_MODE, STRIPE_API_KEY), then lift the halt.",
    ),
    _C.DATABASE_FORGOT: Meaning(
        0,
        "The processor shows a refund of ours that the database does not know.",
        "Follow the runbook for restored databases; lift the halt last.",
    ),
    _C.DATABASE_RESTORED: Meaning(
        0, "The database is not the one that was last used, or an older copy of it.", "Reconcile, compare, then lift the halt."
    ),
    _C.HALTED_BY_OPERATOR: Meaning(0, "An operator halted submitting to the processor.", "An operator lifts the halt."),
    _C.PROCESSOR_REFUSED: Meaning(
        0,
        "The processor definitely refused; no money moved.",
        "See the processor's code; a new refund needs a new decision.",
    ),
    _C.PAYMENT_TOO_OLD: Meaning(
        0,
        "The processor does not refund a payment that old any more; no money moved.",
        "Arrange another way with the customer; nothing is sent again by itself.",
    ),
    _C.PROCESSOR_FAILED: Meaning(
        0,
        "The processor accepted the refund and later failed it; the money came back.",
        "Arrange another way with the customer; nothing is sent again by itself.",
    ),
    _C.OUTCOME_UNKNOWN: Meaning(0, "Nobody can know yet whether the money moved.", "Look in the processor's dashboard, then settle."),
    _C.RESPONSE_MISMATCH: Meaning(0, "The processor's answer is not what was approved.", "Compare in the dashboard, then settle."),
    _C.REFUNDED_TWICE: Meaning(
        0, "The processor shows more than one refund of one operation.", "Compare in the dashboard; recover what is too much, then settle."
    ),
    _C.IDEMPOTENCY_CONFLICT: Meaning(
        0, "The processor knows our key with other content.", "Look the refund up in the dashboard, then settle."
    ),
    _C.STATUS_UNKNOWN: Meaning(0, "The processor reports a status this version does not know.", "Look in the dashboard, then settle."),
    _C.PENDING_TOO_LONG: Meaning(0, "The processor has not finished within 45 days.", "Ask the processor, then settle."),
    _C.MANUAL_PART: Meaning(
        0,
        "No processor can return it: a person gives it back.",
        "Give back what the detail says, then settle it as refunded with evidence; never by another way than it was paid.",
    ),
    _C.SETTLED_NOT_REFUNDED: Meaning(0, "Two persons found that no money had moved.", "Ask for a new refund if it is still due."),
    _C.LEG_REFUSED: Meaning(
        0,
        "The processor definitely refused this leg, as when the connected account has too little; the refund itself stands.",
        "See the processor's code; make it good by hand, then settle the leg.",
    ),
    _C.LEG_GIVEN_UP: Meaning(
        0,
        "The leg was never sent and will not be: somebody took of the same transfer or fee back meanwhile, its refund had counted as failed, "
        "or this program speaks another API version by now.",
        "Look in the processor's dashboard; settle the leg with what was made for it, or make it good by hand first.",
    ),
    _C.SETTLED_NOT_REVERSED: Meaning(
        0, "Two persons found that nothing had been taken back.", "Settle with the connected account another way if it is still due."
    ),
    _C.NO_ORDER_ID: Meaning(0, "The payment's metadata names no order.", "Send the order yourself, or set the metadata and pull again."),
    _C.NO_CUSTOMER_ID: Meaning(
        0,
        "The payment's metadata names an order and no customer, so nobody can say whose it is.",
        "Send the order yourself, or set the metadata and pull again.",
    ),
    _C.CUSTOMERS_DIFFER: Meaning(
        0,
        "Payments of one order name different customers, or another one than the order's.",
        "Correct the metadata, or send the order yourself.",
    ),
    _C.CURRENCIES_DIFFER: Meaning(
        0,
        "The payment is in another currency than the order or its other payments.",
        "Send the order yourself; it says which currency is its own.",
    ),
    _C.PAYMENT_UNREADABLE: Meaning(
        0, "The processor's answer for this payment cannot be read.", "Look it up there, and send the order yourself."
    ),
    _C.ERASURE_LIST_UNAVAILABLE: Meaning(
        503,
        "The list of erasures outside the database cannot be written, so nobody is forgotten: after a restore it could not be done again.",
        "Repair what ERASURE_LIST names, then repeat.",
        retryable=True,
    ),
    _C.STORE_UNAVAILABLE: Meaning(
        503,
        "The database cannot be reached; nothing was stored, or a repeated call finds what was.",
        "Repeat with the same Idempotency-Key after Retry-After seconds.",
        retryable=True,
    ),
    _C.ORCHESTRATOR_UNAVAILABLE: Meaning(
        503,
        "The workflow engine cannot be reached; what was recorded is delivered later.",
        "Read the refund, or repeat the same call.",
        retryable=True,
    ),
    _C.PROCESSOR_UNAVAILABLE: Meaning(503, "The processor cannot be asked just now.", "Repeat later.", retryable=True),
    _C.SEALED_UNREADABLE: Meaning(
        500,
        "Something sealed cannot be opened with the master key of this process, or it was changed.",
        "Give the process the master key it was sealed with (docs/personal-data.md#the-master-key). If it has that, the row was changed: restore it.",
        retryable=True,
    ),
    _C.INTERNAL: Meaning(
        500,
        "Something unexpected went wrong here; it was logged.",
        "Repeat with the same Idempotency-Key; give the request id to support.",
        retryable=True,
    ),
}
