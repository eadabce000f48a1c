"""The rules and the record: limits over time, stops by scope, approvals; the chained ledger; what is personal, sealed"""

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _ledger()
    _personal()
    _policy()
    _limits()
    _controls()
    _approvals()


def downgrade() -> None:
    _without_approvals()
    _without_controls()
    _without_limits()
    _without_policy()
    _without_personal()
    _without_ledger()


# --- the chained ledger


def _ledger() -> None:
    pass


def _without_ledger() -> None:
    pass


# --- what is personal


def _personal() -> None:
    pass


def _without_personal() -> None:
    pass


# --- policy versions and what a judgement records


def _policy() -> None:
    pass


def _without_policy() -> None:
    pass


# --- limits over time and the breaker


def _limits() -> None:
    pass


def _without_limits() -> None:
    pass


# --- stops by scope, and modes


def _controls() -> None:
    pass


def _without_controls() -> None:
    pass


# --- approvals


def _approvals() -> None:
    pass


def _without_approvals() -> None:
    pass
